from nervure import Node

for event in Node():
    if event.type == "INPUT":
        print(f"Python heard: {event.text}")
