"""A sink: prints its inputs."""

from nervure import Node


def main() -> None:
    for event in Node():
        if event.id == "brightness":
            print(f"{event.object:.0f}")


if __name__ == "__main__":
    main()
