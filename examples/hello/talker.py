from nervure import Node

node = Node()
greetings = iter(["good morning", "hello", "hello again", "what a day", "good night"])
for event in node:
    if event.id == "tick":
        greeting = next(greetings, None)
        if greeting is None:
            break
        node.send("greeting", greeting)
