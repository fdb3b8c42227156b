//! Nodes that work on goals of an action, and nodes that send goals.

use std::{error::Error, ops::ControlFlow, time::Duration};

use nervure_node::{CallError, Event, GoalState, Node, Request, Sample, Ticket, message::Scalar};

const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

fn number(sample: &Sample) -> Result<i64, Box<dyn Error>> {
    match sample.view()?.scalar()? {
        Scalar::Integer(number) => Ok(number),
        other => Err(format!("{other:?} is no number").into()),
    }
}

/// Counts to the number of each goal, one at a tick, with each number as feedback, and answers ten times the
/// number. 0 fails; -1 is never reached; -2 is reached when it is cancelled.
pub fn work() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let mut goals: Vec<(Request, i64, i64)> = Vec::new();
    while let Some(event) = node.next() {
        match event {
            Event::Goal(goal) => match number(goal.sample())? {
                0 => goal.fail("it is nothing")?,
                end => goals.push((goal, 0, end)),
            },
            Event::Cancel(cancel) => {
                let cause = cancel.cancel_cause().ok_or("no cause")?;
                println!("cancel {} {cause}", cancel.goal().ok_or("no goal")?);
                let is_meant = |goal: &&(Request, i64, i64)| goal.0.goal() == cancel.goal();
                match goals.iter().find(is_meant).map(|(_, _, end)| *end) {
                    Some(-2) => cancel.reply(&7)?,
                    _ => cancel.canceled()?,
                }
                assert!(cancel.update(&1).is_err(), "it has ended");
                goals.retain(|(goal, _, _)| goal.goal() != cancel.goal());
            }
            Event::Tick { .. } => {
                for (goal, reached, end) in &mut goals {
                    if *end > 0 {
                        *reached += 1;
                        goal.update(reached)?;
                    }
                    if reached == end {
                        goal.reply(&(*end * 10))?;
                    }
                }
                goals.retain(|(_, reached, end)| reached != end);
            }
            Event::Stop { reason } => println!("STOP {reason}"),
            _ => {}
        }
    }
    Ok(())
}

fn wait_for(node: &mut Node, ticket: Ticket, state: GoalState) {
    while node.actions().state(ticket) != state {
        node.next_timeout(Duration::from_millis(1));
    }
    println!("{state}");
}

fn result(node: &mut Node, ticket: Ticket) -> Result<Sample, CallError> {
    loop {
        if let Some(result) = node.take_answer(ticket) {
            return result;
        }
        node.next_timeout(Duration::from_millis(1));
    }
}

fn print_result(result: Result<Sample, CallError>) -> Result<(), Box<dyn Error>> {
    match result {
        Ok(sample) => println!("result {}", number(&sample)?),
        Err(error) => println!("{error}"),
    }
    Ok(())
}

/// Sends goals one after the other, and prints their progress.
pub fn act() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let mut feedback = Vec::new();
    let reached = node.actions().run("count", &3, MINUTE, |sample| {
        feedback.extend(number(sample).ok());
        ControlFlow::Continue(())
    })?;
    println!("{feedback:?} then {}", number(&reached)?);
    print_result(
        node.actions()
            .run("count", &0, MINUTE, |_| ControlFlow::Continue(())),
    )?;
    for endless in [-1, -2] {
        let ticket = node.actions().send("count", &endless, MINUTE)?;
        wait_for(&mut node, ticket, GoalState::Accepted);
        node.actions().cancel(ticket)?;
        node.actions().cancel(ticket)?;
        print_result(result(&mut node, ticket))?;
    }
    // Cancelled at the first feedback.
    print_result(
        node.actions()
            .run("count", &1_000_000, MINUTE, |_| ControlFlow::Break(())),
    )?;
    let short = Some(Duration::from_millis(50));
    print_result(
        node.actions()
            .run("count", &-1, short, |_| ControlFlow::Continue(())),
    )?;
    match node.actions().send("twice", &1, None) {
        Err(error) => println!("{error}"),
        Ok(_) => println!("a service takes goals"),
    }
    Ok(())
}

/// Sends a goal, and another while the node works on the first.
pub fn act_twice() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let first = node.actions().send("count", &-1, None)?;
    wait_for(&mut node, first, GoalState::Accepted);
    let second = node.actions().send("count", &2, None)?;
    print_result(result(&mut node, second))?;
    node.actions().cancel(first)?;
    print_result(result(&mut node, first))
}

/// Sends a goal without an end, and waits.
pub fn act_on() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let goal = node.actions().send("count", &-1, None)?;
    wait_for(&mut node, goal, GoalState::Accepted);
    print_result(result(&mut node, goal))
}

/// Sends goals that no client takes feedback of, as many as may be in flight, and prints the results.
pub fn act_slowly() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let begin = |_| node.actions().send("count", &100, MINUTE);
    let tickets: Vec<Ticket> = (0..16).map(begin).collect::<Result<_, _>>()?;
    let sum: i64 = tickets
        .into_iter()
        .map(|ticket| number(&result(&mut node, ticket)?))
        .sum::<Result<_, Box<dyn Error>>>()?;
    println!("sum {sum}");
    Ok(())
}
