"""A question for a value of a type is a form on the page."""

from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

from playwright.sync_api import Page, expect
from pydantic import BaseModel, Field, field_validator

from browser.conftest import Eyes
from browser.served_journal import gone, staged
from treefold import CodeFunction, RunContext


class Class(Enum):
    First = "first"
    Second = "second"


class Guest(BaseModel):
    name: str


class Trip(BaseModel):
    city: Annotated[str, Field(description="Where the meeting is")]
    nights: Annotated[int, Field(ge=1)] = 2
    price: float | None = None
    start: date
    by_train: bool = True
    travel_class: Class = Class.Second
    seat: Literal["window", "aisle"]
    guests: list[Guest] = []

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such city")
        return city


def asking(*given: Any, **options: Any) -> CodeFunction:
    async def book(ctx: RunContext) -> Any:
        return await ctx.ask(*given, **options)

    return CodeFunction(callable=book)


def panel_of(page: Page) -> Any:
    page.get_by_role("button", name="1 question for you").click()
    return page.get_by_role("region", name="Open questions")


def test_a_model_is_filled_in_field_by_field(eyes: Eyes):
    function = asking(Trip, "Which trip shall I book?", to="travel desk", escalate={"boss": 3600})
    with staged(function) as stage:
        node = stage.runtime.invoke(function)
        page = eyes.open(stage.url)
        panel = panel_of(page)
        expect(panel.get_by_text("for travel desk; for boss from")).to_be_visible()
        assert panel.get_by_label("nights").input_value() == "2"
        assert panel.get_by_label("by_train").is_checked()
        panel.get_by_label("city").fill("Atlantis")
        panel.get_by_label("nights").fill("3")
        panel.get_by_label("start").fill("2026-05-31")
        panel.get_by_label("by_train").uncheck()
        panel.get_by_label("travel_class").select_option("first")
        panel.get_by_label("seat").select_option("window")
        panel.get_by_label("guests").fill('[{"name": "Anna"')
        panel.get_by_role("button", name="Answer").click()
        expect(panel.get_by_role("alert")).to_contain_text("guests is not JSON")
        panel.get_by_label("guests").fill('[{"name": "Anna"}]')
        eyes.picture(page)
        panel.get_by_role("button", name="Answer").click()
        # Only the program knows that.
        expect(page.get_by_text("there is no such city").first).to_be_visible()
        assert len(eyes.complaints) == 1  # about the answer 400
        eyes.complaints.clear()
        panel.get_by_label("city").fill("Rome")
        panel.get_by_role("button", name="Answer").click()
        gone(panel)
        assert node.result(60) == Trip(
            city="Rome",
            nights=3,
            start=date(2026, 5, 31),
            by_train=False,
            travel_class=Class.First,
            seat="window",
            guests=[Guest(name="Anna")],
        )


def test_a_form_begins_with_the_default(eyes: Eyes):
    default = Trip(city="Rome", start=date(2026, 5, 31), seat="aisle", price=99.5)
    function = asking(Trip, "Which trip?", default=default, expires=3600)
    with staged(function) as stage:
        node = stage.runtime.invoke(function)
        page = eyes.open(stage.url, wide=False)
        panel = panel_of(page)
        eyes.picture(page)
        panel.get_by_role("button", name="Answer").click()
        gone(panel)
        assert node.result(60) == default


def test_a_single_value_has_one_control(eyes: Eyes):
    function = asking(int, "How many?", default=3, expires=3600)
    with staged(function) as stage:
        node = stage.runtime.invoke(function)
        panel = panel_of(eyes.open(stage.url))
        eyes.picture(eyes.pages[0])
        panel.get_by_label("Your answer").fill("4")
        panel.get_by_role("button", name="Answer").click()
        gone(panel)
        assert node.result(60) == 4


def test_yes_or_no_is_a_checkbox(eyes: Eyes):
    function = asking(bool, "Deploy?")
    with staged(function) as stage:
        node = stage.runtime.invoke(function)
        panel = panel_of(eyes.open(stage.url))
        panel.get_by_label("Your answer").check()
        panel.get_by_role("button", name="Answer").click()
        gone(panel)
        assert node.result(60) is True
