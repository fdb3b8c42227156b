"""Views of received samples, and loans: owners of the memory, and its lifetime."""

from conftest import Dataflow, lossless


def test_views_are_read_only_and_keep_their_block(dataflow: Dataflow) -> None:
    dataflow.node(
        "sender",
        """
        import numpy as np
        from nervure import Node

        node = Node()
        for number in range(40):
            node.send("image", np.full((300, 400), number, "u2"))
        """,
        outputs=["image"],
    )
    dataflow.node(
        "receiver",
        """
        import gc
        import numpy as np
        import pytest
        from nervure import Node

        # Each of the first samples is kept by another kind of reference, while the other samples pass.
        keep = [
            lambda event: event,
            lambda event: event.numpy(),
            lambda event: event.numpy()[100:, ::2],
            lambda event: event.numpy().reshape(-1)[5:6],
            lambda event: memoryview(event.numpy()),
            lambda event: event.value,
            lambda event: event.value.slice(3, 2).buffers()[1],
            lambda event: event.value.to_numpy(),
        ]
        read = [
            lambda kept: kept.numpy(),
            lambda kept: kept,
            lambda kept: kept,
            lambda kept: kept,
            lambda kept: np.asarray(kept),
            lambda kept: kept.to_numpy(),
            lambda kept: np.frombuffer(kept, "u2"),
            lambda kept: kept,
        ]
        kept, first = [], None
        for event in Node():
            if event.type == "INPUT":
                array = event.numpy()
                assert (array == event.sequence).all()
                with pytest.raises(ValueError):
                    array[0, 0] = 1
                with pytest.raises(ValueError):
                    array.setflags(write=True)
                first = first or array.ctypes.data
                if event.sequence < len(keep):
                    kept.append(keep[event.sequence](event))
        del event, array
        gc.collect()
        for number, (kept, read) in enumerate(zip(kept, read, strict=True)):
            assert (read(kept) == number).all(), number
        print("done")
        """,
        inputs={"image": lossless("sender/image")},
    )
    assert dataflow.run().lines("receiver") == ["done"]


def test_arrays_in_a_dict_are_views_that_keep_their_block(dataflow: Dataflow) -> None:
    """The sender waits while the receiver holds its limit of samples; copies do not count."""
    dataflow.node(
        "sender",
        """
        import numpy as np
        from nervure import Node

        node = Node()
        for number in range(40):
            node.send("image", {"img": np.full((300, 400), number, "u2"), "n": [number]})
        """,
        outputs=["image"],
    )
    dataflow.node(
        "receiver",
        """
        import pytest
        from nervure import Node

        views, copies = [], []
        for event in Node():
            if event.type == "INPUT":
                value = event.object
                assert value["n"] == [event.sequence] and (value["img"] == event.sequence).all()
                with pytest.raises(ValueError):
                    value["img"][0, 0] = 1
                with pytest.raises(ValueError):
                    value["img"].setflags(write=True)
                if event.sequence < 5:
                    views.append(value["img"][::2])
                else:
                    copies.append(event.copied())
                    assert copies[-1].sequence == event.sequence and copies[-1].stamp == event.stamp
        for number, view in enumerate(views):
            assert (view == number).all(), number
        # More than the limit of one input.
        assert len(copies) == 35
        for copy in copies:
            assert (copy.object["img"] == copy.sequence).all() and copy.id == "image"
        print("done")
        """,
        inputs={"image": {**lossless("sender/image"), "max_held": 12}},
    )
    assert dataflow.run().lines("receiver") == ["done"]


def test_a_dropped_view_returns_its_block(dataflow: Dataflow) -> None:
    """Far more samples than fit into the memory, through a lossless queue."""
    dataflow.node(
        "sender",
        """
        import numpy as np
        from nervure import Node

        node = Node()
        for number in range(200):
            node.send("image", np.full(1_000_000, number % 256, "u1"))
        """,
        outputs=["image"],
        shared_memory="10MB",
    )
    dataflow.node(
        "receiver",
        """
        from nervure import Node

        arrays = [event.numpy()[0] for event in Node() if event.type == "INPUT"]
        assert arrays == [number % 256 for number in range(200)]
        print("done")
        """,
        inputs={"image": lossless("sender/image")},
    )
    assert dataflow.run().lines("receiver") == ["done"]


LOANS = """
    import gc
    import numpy as np
    import pytest
    from nervure import LoanError, Node

    node = Node()
    stamp = 1000.5

    for shape, dtype in [
        ((540, 960, 3), "u1"), (8, "f8"), ((), "i4"), ((3, 0), "f4"), ((100, 100), np.float32),
        ((5,), "M8[ns]"), (3, np.dtype([("a", "i4"), ("b", "U3")])), ([2, 2], ">u2"), ((70_000,), "?"),
    ]:
        with node.loan("value", shape, dtype, stamp=stamp, metadata={"n": 1}, frame="here") as loan:
            array = loan.array
            assert array.shape == np.zeros(shape).shape
            assert array.dtype == np.dtype(dtype) and array.flags.writeable and array is loan.array
            array[...] = np.zeros(array.shape, array.dtype)
        # It belongs to the receivers now.
        assert not array.flags.writeable
        with pytest.raises(ValueError):
            array.setflags(write=True)
        with pytest.raises(ValueError):
            array[...] = array
        with pytest.raises(LoanError, match="the loan is over"):
            loan.array
        with pytest.raises(LoanError):
            loan.send()
        loan.discard()

    # An exception discards it.
    with pytest.raises(ZeroDivisionError), node.loan("value", 1000, "u1") as loan:
        loan.array[:] = 9
        1 / 0
    loan = node.loan("value", 1000, "u1")
    loan.array[:] = 9
    loan.discard()

    # A sent value must not change, so no writeable view may be left.
    for make in (
        lambda array: array[1:], lambda array: array.reshape(10, -1), lambda array: array.view("u2"),
        lambda array: array[::2][1:], lambda array: array.T.T,
    ):
        for size in (10, 100_000):
            with pytest.raises(LoanError, match="1 writeable view.s. of its array are still alive"):
                with node.loan("value", size, "u1") as loan:
                    view = make(loan.array)
                    view[...] = 9
            with pytest.raises(LoanError, match="the loan is over"):
                loan.array
            del view
    loan = node.loan("value", 100_000, "u1")
    view = loan.array[5:]
    with pytest.raises(LoanError):
        loan.send()
    view[:] = 1
    loan.array[:5] = 1
    del view
    loan.send()

    # An array that outlives its loan, and the node's memory, can still be read.
    with node.loan("value", 200_000, "u1") as loan:
        kept = loan.array
        kept[:] = 1
    for size in range(300_000, 3_000_000, 300_000):
        with node.loan("value", size, "u1") as loan:
            loan.array[:] = 1
    kept.sum()
    with pytest.raises(TypeError):
        node.loan("value", 3, object)
    for shape in (-1, (3, -1), "x", 1.5):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            node.loan("value", shape, "u1")
    with pytest.raises(TypeError):
        node.loan("value", 3, "no such type")
    print("done")
"""


def test_loans(dataflow: Dataflow) -> None:
    dataflow.node("sender", LOANS, outputs=["value"], shared_memory="8MB")
    dataflow.node(
        "receiver",
        """
        import numpy as np
        from nervure import Node

        received = 0
        for event in Node():
            if event.type == "INPUT":
                array = event.numpy()
                if received < 9:
                    assert not array.flags.writeable and event.stamp == 1000.5
                    assert event.metadata == {"n": 1} and event.frame == "here"
                    assert (array == np.zeros(array.shape, array.dtype)).all()
                else:
                    assert (array == 1).all()
                received += 1
        assert received == 9 + 1 + 1 + 9, received
        print("done")
        """,
        inputs={"value": lossless("sender/value")},
    )
    result = dataflow.run()
    assert result.lines("sender") == ["done"]
    assert result.lines("receiver") == ["done"]
