"""Cleaning policies in Python: the interface of the engine's, and its results."""

import time

import pytest

import seekless

LOG = dict(blocks=2000, segment_blocks=32, warm_up=3, writes=3, pattern="zipf")


class Fifo(seekless.Policy):
    """The oldest segment, as the engine has it."""

    def start(self, shape):
        self.queue = []

    def closed(self, segment):
        self.queue.append(segment.number)

    def cleaned(self, segment):
        self.queue.remove(segment.number)

    def choose(self, now):
        return self.queue[0]


class Greedy(seekless.Policy):
    """The emptiest segment; two heads, one for what is moved."""

    heads = 2

    def start(self, shape):
        assert shape.segment_blocks == 32 and 0.7 < shape.utilisation < 0.8
        self.live = {}

    def relocate(self, block):
        assert block.written <= block.now
        return 1

    def closed(self, segment):
        self.live[segment.number] = segment.live

    def died(self, segment, live):
        self.live[segment] = live

    def cleaned(self, segment):
        assert self.live.pop(segment.number) == segment.live

    def choose(self, now):
        return min(self.live, key=self.live.get)


def metrics(policy, **options):
    (row,) = seekless.clean(policy, **{**LOG, **options}).policies
    row.pop("policy"), row.pop("knows_future")
    return row


def test_a_policy_of_the_engine_and_one_in_python():
    """FIFO is the same decision in both, so all numbers are equal; and so they are when the object is used again."""
    fifo = Fifo()
    assert metrics(fifo) == metrics("fifo") == metrics(fifo)
    assert metrics(Fifo(), reserve_segments=2, target_segments=4) == metrics("fifo", reserve_segments=2, target_segments=4)


def test_greedy_is_about_greedy():
    """Which of several segments is taken that are as empty differs, and little follows from that."""
    ours, theirs = metrics(Greedy()), metrics("sep-gc:select=greedy")
    assert ours["write_cost"] == pytest.approx(theirs["write_cost"], rel=0.05)


def test_several_policies():
    result = seekless.clean(["greedy", Fifo(), "cost-benefit"], **LOG)
    assert [row["policy"].split(":")[0] for row in result.policies] == ["greedy", "Fifo", "cost-benefit"]
    assert len(result.distributions) == 60 and "Fifo" in repr(result)


def test_notes_and_the_future():
    """A note comes back with its block, and deaths are those that were foretold."""

    class Noting(Fifo):
        needs = ("times", "notes", "future")

        def start(self, shape):
            super().start(shape)
            self.seen = 0

        def write(self, block):
            if block.written is not None:
                assert block.note == block.written % 1000 + 1
                self.seen += 1
            assert block.dies is None or block.dies > block.now
            return 0, block.now % 1000 + 1

        def relocate(self, block):
            assert block.note == block.written % 1000 + 1
            return 0, block.note

    noting = Noting()
    seekless.clean(noting, **LOG)
    assert noting.seen > 1000


def test_when_to_clean():
    """A policy that cleans earlier than the options say has more passes to make."""

    class Early(Greedy):
        def wants(self, room):
            return room.is_short or (room.victims is None and room.clean < 5)

    assert metrics(Early())["write_cost"] > metrics(Greedy())["write_cost"]


class Broken(Fifo):
    pass


@pytest.mark.parametrize(
    "broken, error, text",
    [
        (dict(choose=lambda self, now: 1 / 0), ZeroDivisionError, "division"),
        (dict(choose=lambda self, now: 10**6), ValueError, "segment 1000000 is not closed"),
        (dict(choose=lambda self, now: None), ValueError, "returned None"),
        (dict(write=lambda self, block: 1), ValueError, "head 1: the policy has 1"),
        (dict(write=lambda self, block: "x"), ValueError, "is no head"),
        (dict(write=lambda self, block: (0, 1 << 20)), ValueError, "is no head"),
        (dict(needs=("luck",)), ValueError, "luck"),
        (dict(order="best"), ValueError, "order"),
        (dict(heads=0), ValueError, "1 to 255 heads"),
        (dict(closed=lambda self, segment: segment.nothing), AttributeError, "nothing"),
        (dict(start=lambda self, shape: 1 / 0), ZeroDivisionError, "division"),
    ],
)
def test_a_policy_that_fails(broken, error, text):
    """Its exception comes out, soon, and nothing else happens."""
    policy = type("Broken", (Fifo,), broken)()
    start = time.monotonic()
    with pytest.raises(error, match=text):
        seekless.clean(policy, **{**LOG, "writes": 100.0})
    assert time.monotonic() - start < 20


def test_what_is_no_policy():
    with pytest.raises(TypeError, match="seekless.Policy"):
        seekless.clean([object()], **LOG)
    with pytest.raises(NotImplementedError):
        seekless.clean(seekless.Policy(), **LOG)
    with pytest.raises(seekless.UsageError):
        seekless.clean(Fifo(), pattern="zipfy")
