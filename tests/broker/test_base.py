from __future__ import annotations

from catena.broker.base import AnswerBudget


def test_a_budget_of_answers_is_never_below_nothing() -> None:
    budget = AnswerBudget(100)
    budget.take(70)
    assert budget.left == 30
    budget.take(70)
    assert budget.left == 0
    budget.give_back(140)
    assert budget.left == 100
