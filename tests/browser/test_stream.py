"""A page whose road to the server is cut finds back, and has missed nothing."""

from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Request, expect

from browser import newsroom
from browser.conftest import Eyes
from browser.proxy import Relay
from browser.served_journal import Stage, call, calls, open_run, staged, state, when
from treefold.views import data


def seqs_asked_for(page: Page) -> list[int]:
    """Keep from which version on the page asks to be told of a run."""
    asked: list[int] = []

    def look(request: Request) -> None:
        query = parse_qs(urlsplit(request.url).query)
        if "/api/stream" in request.url and "tree" in query:
            asked.append(int(query["seq"][0]))

    page.on("request", look)
    return asked


def road(stage: Stage, relay: Relay) -> str:
    return f"http://127.0.0.1:{relay.port}/#token={stage.viewer.token}"


def shown(page: Page) -> list[str]:
    return [" ".join(text.split()) for text in page.locator(".row .path").all_inner_texts()]


def test_a_stream_that_is_cut_goes_on_where_it_was(eyes: Eyes):
    with staged() as stage, Relay(int(stage.viewer.address.rpartition(":")[2])) as relay:
        stage.model.gate.clear()
        node = stage.digest()
        page = eyes.open(road(stage, relay))
        asked = seqs_asked_for(page)
        open_run(page)
        state(call(page, "1.3"), "running")
        relay.cut()
        expect(page.get_by_text("reconnecting…")).to_be_visible()
        eyes.picture(page, "reconnecting")
        stage.model.gate.set()
        when(page, stage.runtime.questions)  # much happens while the connection is cut
        relay.mend()
        expect(page.get_by_text("program running", exact=True)).to_be_visible()
        state(call(page, "publish"), "waits for you")
        rows = data.rows(stage.runtime.get_view(node.id))
        assert shown(page) == [row["path"] for row in rows]
        for row in rows[:-1]:
            state(calls(page).filter(has_text=row["path"]).first, row["state"])
        assert asked[0] == 0
        assert all(seq > 0 for seq in asked[1:])  # it has not asked for what it had
        assert len(asked) > 1


def test_many_cuts_in_the_middle_of_things_leave_no_gap_and_no_double(eyes: Eyes):
    with staged(pace=0.004) as stage, Relay(int(stage.viewer.address.rpartition(":")[2])) as relay:
        page = eyes.open(road(stage, relay))
        node = stage.digest()
        open_run(page)
        for _ in range(8):
            page.wait_for_timeout(70)
            relay.cut()
            relay.mend()
        state(call(page, "publish"), "waits for you")
        rows = data.rows(stage.runtime.get_view(node.id))
        assert shown(page) == [row["path"] for row in rows]
        expect(call(page, "fact_check")).to_contain_text("One fact holds.")
        for name in newsroom.NAMES:
            expect(call(page, f"summarise(text='{name}')")).to_contain_text(f"{name} is about")


def test_what_is_asked_for_without_a_server_fails_in_words(eyes: Eyes):
    with staged() as stage, Relay(int(stage.viewer.address.rpartition(":")[2])) as relay:
        stage.digest()
        page = eyes.open(road(stage, relay))
        open_run(page)
        state(call(page, "publish"), "waits for you")
        expect(page.get_by_role("article")).to_be_visible()
        relay.cut()
        page.get_by_role("group", name="Actions on this run").get_by_role(
            "button", name="Pause"
        ).click()
        expect(page.get_by_role("alert").filter(has_text="does not answer")).to_be_visible()
        eyes.picture(page)
