use super::*;

#[test]
fn without_a_keeper_there_is_no_context() {
    assert!(init_dora_context_from_env().is_null());
}

#[test]
fn null_is_refused() {
    let (mut start, mut length) = (ptr::dangling::<u8>(), 7);
    // SAFETY: every function accepts null.
    unsafe {
        assert!(dora_next_event(ptr::null_mut()).is_null());
        assert_eq!(read_dora_event_type(ptr::null()), Kind::Unknown);
        read_dora_input_id(ptr::null(), &mut start, &mut length);
        assert!(start.is_null() && length == 0);
        (start, length) = (ptr::dangling(), 7);
        read_dora_input_data(ptr::null(), &mut start, &mut length);
        assert!(start.is_null() && length == 0);
        read_dora_input_data(ptr::null(), ptr::null_mut(), ptr::null_mut());
        assert_eq!(read_dora_input_timestamp(ptr::null()), 0);
        let id = c"out".as_ptr();
        assert_eq!(dora_send_output(ptr::null_mut(), id, 3, ptr::null(), 0), -1);
        assert_eq!(dora_log(ptr::null_mut(), id, 3, id, 3), -1);
        free_dora_event(ptr::null_mut());
        free_dora_context(ptr::null_mut());
    }
}

#[test]
fn slices_of_c_are_checked() {
    // SAFETY: the pointers are null or point to as many bytes as stated.
    unsafe {
        assert_eq!(bytes(ptr::null(), 0), Ok(&[][..]));
        let error = bytes(ptr::null(), 3).unwrap_err();
        assert_eq!(error, "is NULL, and has a length of 3");
        assert_eq!(text(c"out".as_ptr(), 3), Ok("out"));
        assert!(
            text(c"\xff".as_ptr(), 1)
                .unwrap_err()
                .starts_with("is not UTF-8")
        );
    }
}

#[test]
fn levels_have_the_names_that_the_log_knows() {
    let levels = ["error", "Warning", "debug", "trace", "info", "loud"].map(level_name);
    assert_eq!(levels, ["ERROR", "WARN", "DEBUG", "TRACE", "INFO", "INFO"]);
}
