"""Purpose of this node, in one sentence."""

from nervure import Node


def main() -> None:
    node = Node()
    for event in node:
        if event.id == "input":
            node.send("output", event.numpy(), like=event)


if __name__ == "__main__":
    main()
