use super::*;

/// Sets with the number of the value whose arrival completed each, as `arrival=value+value`.
fn sets(matcher: &mut Matcher<usize>, values: &[(usize, i64)]) -> Vec<String> {
    let mut sets = Vec::new();
    for (number, &(lane, stamp)) in values.iter().enumerate() {
        matcher.add(lane, stamp, number);
        while let Some(set) = matcher.next_set() {
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            sets.push(format!("{number}={}", set.join("+")));
        }
    }
    sets
}

fn unmatched(matcher: &mut Matcher<usize>) -> Vec<u64> {
    let lanes = 0..matcher.lanes.len();
    lanes.map(|lane| matcher.take_unmatched(lane)).collect()
}

fn waiting(matcher: &Matcher<usize>) -> Vec<usize> {
    let lanes = matcher.lanes.iter();
    lanes
        .map(|lane| lane.waiting.len() + lane.past.len())
        .collect()
}

#[test]
fn approximate_sets_are_those_of_message_filters() {
    let mut lines = include_str!("approximate_time.txt").lines();
    let mut lines = std::iter::from_fn(|| lines.find(|line| !line.starts_with('#')));
    let mut cases = 0;
    while let Some(settings) = lines.next() {
        let settings: Vec<&str> = settings.split(' ').collect();
        let [
            "lanes",
            lanes,
            "queue_size",
            queue_size,
            "tolerance",
            tolerance,
        ] = settings[..]
        else {
            panic!("{settings:?}");
        };
        let values: Vec<(usize, i64)> = lines
            .next()
            .and_then(|line| line.strip_prefix("in "))
            .unwrap()
            .split(' ')
            .map(|value| value.split_once(':').unwrap())
            .map(|(lane, stamp)| (lane.parse().unwrap(), stamp.parse().unwrap()))
            .collect();
        let expected = lines
            .next()
            .and_then(|line| line.strip_prefix("out "))
            .unwrap();
        let mut matcher = Matcher::new(
            lanes.parse().unwrap(),
            SyncPolicy::Approximate,
            tolerance.parse().ok(),
            queue_size.parse().unwrap(),
        );
        let found = sets(&mut matcher, &values);
        assert_eq!(found.join(" "), expected, "case {cases}: {settings:?}");
        let arrived = |lane| values.iter().filter(|value| value.0 == lane).count();
        let counted: Vec<usize> = unmatched(&mut matcher)
            .into_iter()
            .zip(waiting(&matcher))
            .map(|(unmatched, waiting)| unmatched as usize + waiting + found.len())
            .collect();
        let arrived: Vec<usize> = (0..matcher.lanes.len()).map(arrived).collect();
        assert_eq!(counted, arrived, "case {cases}: each value is counted once");
        cases += 1;
    }
    assert!(cases >= 40);
}

#[test]
fn exact_sets_have_equal_stamps_and_what_has_no_partner_is_counted() {
    let mut matcher = Matcher::new(2, SyncPolicy::Exact, None, 3);
    let values = [
        (0, 10),
        (0, 20),
        (1, 20),
        (1, 30),
        (0, 31),
        (0, 40),
        (1, 40),
    ];
    assert_eq!(sets(&mut matcher, &values), ["2=1+2", "6=5+6"]);
    assert_eq!(unmatched(&mut matcher), [2, 1]);
}

#[test]
fn exact_sets_may_differ_by_the_tolerance() {
    let mut matcher = Matcher::new(3, SyncPolicy::Exact, Some(5), 3);
    let values = [
        (0, 10),
        (1, 14),
        (2, 15),
        (0, 20),
        (1, 26),
        (2, 26),
        (0, 30),
    ];
    assert_eq!(sets(&mut matcher, &values), ["2=0+1+2", "6=6+4+5"]);
    assert_eq!(unmatched(&mut matcher), [1, 0, 0]);
}

#[test]
fn a_lane_without_partners_keeps_its_newest_values() {
    for policy in [SyncPolicy::Exact, SyncPolicy::Approximate] {
        let mut matcher = Matcher::new(2, policy, None, 3);
        let values: Vec<_> = (0..100).map(|stamp| (0, stamp)).collect();
        assert!(sets(&mut matcher, &values).is_empty());
        assert_eq!(
            (unmatched(&mut matcher), waiting(&matcher)),
            (vec![97, 0], vec![3, 0])
        );
    }
}

#[test]
fn the_last_set_comes_when_a_lane_has_ended() {
    let mut matcher = Matcher::new(2, SyncPolicy::Approximate, None, 10);
    // A value of the first lane at 10 would be a better partner.
    assert!(sets(&mut matcher, &[(0, 0), (1, 10)]).is_empty());
    matcher.close(0);
    assert_eq!(matcher.next_set(), Some(vec![0, 1]));
    matcher.add(1, 20, 2);
    assert_eq!(
        (unmatched(&mut matcher), waiting(&matcher)),
        (vec![0, 1], vec![0, 0])
    );
}

#[test]
fn stamps_of_a_hostile_producer_end_no_search() {
    let stamps = [i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN, 7];
    for policy in [SyncPolicy::Exact, SyncPolicy::Approximate] {
        let mut matcher = Matcher::new(2, policy, Some(5), 3);
        for round in 0..100 {
            for (at, stamp) in stamps.into_iter().enumerate() {
                matcher.add((at + round) % 2, stamp, 0);
            }
        }
        assert!(waiting(&matcher).into_iter().all(|waiting| waiting <= 3));
    }
}
