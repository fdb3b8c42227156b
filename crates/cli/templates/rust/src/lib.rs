//! The computation of the nodes, apart from their inputs and outputs.

/// The mean of all pixels, from 0 to 255; 0 for no pixels.
pub fn brightness(pixels: &[u8]) -> f64 {
    let sum: u64 = pixels.iter().map(|&pixel| u64::from(pixel)).sum();
    sum as f64 / pixels.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brightness_is_the_mean() {
        assert_eq!(brightness(&[0, 100, 200]), 100.0);
        assert_eq!(brightness(&[]), 0.0);
    }
}
