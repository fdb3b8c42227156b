"""A source: a picture at each tick, filled in place in shared memory."""

from nervure import Node


def main() -> None:
    node = Node()
    grey = 0
    for event in node:
        if event.id == "tick":
            with node.loan("image", (480, 640), "u1", stamp=event.stamp) as loan:
                loan.array[:] = grey
            grey = (grey + 10) % 256


if __name__ == "__main__":
    main()
