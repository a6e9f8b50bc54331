"""When a blob waits for those who were just answered, for how long, and when no more."""

from __future__ import annotations

from catena.loglets.diskless.company import PASSES, SHARE, WAIT_MAX_S, Company


def answered(company: Company, entries: int, waiting: int = 0, took_s: float = 0.004) -> None:
    """So many were sent at 100 s, and were answered."""
    company.sent(entries, 100.0)
    company.all_answered(waiting, 100.0 + took_s)


def test_a_lone_producer_waits_for_nobody() -> None:
    company = Company()
    assert company.wait_s(1, 5.0) <= 0
    answered(company, 1)
    assert company.wait_s(1, 100.004) <= 0


def test_it_waits_for_as_many_as_were_answered() -> None:
    company = Company()
    answered(company, 3, waiting=2, took_s=0.004)
    assert company.wait_s(2, 100.004) > 0
    assert company.wait_s(4, 100.005) > 0
    assert company.wait_s(5, 100.005) <= 0


def test_what_was_sent_in_several_blobs_counts_together() -> None:
    company = Company()
    company.sent(2, 100.0)
    company.sent(2, 100.002)
    company.all_answered(0, 100.004)
    assert company.wait_s(3, 100.004) > 0.004 / SHARE - 1e-9
    assert company.wait_s(4, 100.004) <= 0


def test_it_waits_for_a_part_of_what_the_last_ones_took_and_never_long() -> None:
    company = Company()
    answered(company, 9, took_s=0.002)
    assert abs(company.wait_s(1, 100.002) - 0.002 / SHARE) < 1e-9
    assert company.wait_s(1, 100.002 + 0.002 / SHARE) <= 1e-9
    answered(company, 9, took_s=60.0)
    assert abs(company.wait_s(1, 160.0) - WAIT_MAX_S) < 1e-9


def test_after_it_waited_for_nothing_it_does_not_for_a_while() -> None:
    company = Company()
    answered(company, 4)
    company.is_over(1)
    assert company.wait_s(1, 100.004) <= 0
    for _ in range(PASSES):
        answered(company, 4)
        assert company.wait_s(1, 100.004) <= 0
    answered(company, 4)
    assert company.wait_s(1, 100.004) > 0


def test_one_who_is_late_does_not_end_it() -> None:
    company = Company()
    answered(company, 4, waiting=4)
    company.is_over(7)
    answered(company, 4)
    assert company.wait_s(1, 100.004) > 0
