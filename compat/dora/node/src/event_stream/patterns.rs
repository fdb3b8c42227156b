//! Waiting for the answer to a request, or for the result of an action.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use futures_timer::Delay;

use super::{Event, EventStream};
use crate::dora_core::config::NodeId;
use crate::error::PatternError;
use crate::metadata::{
    GOAL_ID, GOAL_STATUS, GOAL_STATUS_ABORTED, GOAL_STATUS_CANCELED, GOAL_STATUS_SUCCEEDED,
    REQUEST_ID, get_string_param,
};

impl EventStream {
    /// Waits for the response with that request id. Other events that arrive meanwhile are received
    /// later.
    ///
    /// # Errors
    /// [`PatternError`].
    pub async fn recv_service_response(
        &mut self,
        request_id: &str,
        expected_server: &NodeId,
        timeout: Duration,
    ) -> Result<Event, PatternError> {
        let is_response = |event: &Event| parameter(event, REQUEST_ID) == Some(request_id);
        self.wait_for(is_response, expected_server, timeout).await
    }

    /// Waits for the end of the action with that goal id. Other events that arrive meanwhile, its
    /// feedback among them, are received later.
    ///
    /// # Errors
    /// [`PatternError`].
    pub async fn recv_action_result(
        &mut self,
        goal_id: &str,
        expected_server: &NodeId,
        timeout: Duration,
    ) -> Result<Event, PatternError> {
        let ends = [
            GOAL_STATUS_SUCCEEDED,
            GOAL_STATUS_ABORTED,
            GOAL_STATUS_CANCELED,
        ];
        let is_result = |event: &Event| {
            parameter(event, GOAL_ID) == Some(goal_id)
                && parameter(event, GOAL_STATUS).is_some_and(|status| ends.contains(&status))
        };
        self.wait_for(is_result, expected_server, timeout).await
    }

    async fn wait_for(
        &mut self,
        is_awaited: impl Fn(&Event) -> bool,
        server: &NodeId,
        timeout: Duration,
    ) -> Result<Event, PatternError> {
        // An earlier wait may have set the event aside.
        let mut set_aside = std::mem::take(&mut self.set_aside);
        let result = match set_aside.iter().position(&is_awaited) {
            Some(at) => set_aside.remove(at).ok_or(PatternError::Timeout),
            None => {
                let mut timer = Delay::new(timeout);
                loop {
                    let event = match select(pin!(self.recv_async()), &mut timer).await {
                        Either::Left((Some(event), _)) => event,
                        Either::Left((None, _)) => break Err(PatternError::StreamEnded),
                        Either::Right(_) => break Err(PatternError::Timeout),
                    };
                    let end = match &event {
                        event if is_awaited(event) => None,
                        Event::NodeRestarted { id } if id == server => {
                            Some(PatternError::ServerRestarted(id.to_string()))
                        }
                        Event::Stop(_) => Some(PatternError::StreamEnded),
                        Event::Error(error) => {
                            break Err(PatternError::StreamError(error.clone()));
                        }
                        _ => {
                            set_aside.push_back(event);
                            continue;
                        }
                    };
                    let Some(end) = end else { break Ok(event) };
                    set_aside.push_back(event);
                    break Err(end);
                }
            }
        };
        self.set_aside = set_aside;
        result
    }
}

fn parameter<'a>(event: &'a Event, key: &str) -> Option<&'a str> {
    match event {
        Event::Input { metadata, .. } => get_string_param(&metadata.parameters, key),
        _ => None,
    }
}
