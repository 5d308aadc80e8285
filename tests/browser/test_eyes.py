"""What the tests of pages see: whatever a page asks for elsewhere, or complains of."""

import pytest

from browser.conftest import Eyes

ELSEWHERE = "http://elsewhere.invalid/x.png"


@pytest.mark.parametrize("width", ["desk", "phone"])
def test_a_request_elsewhere_is_noticed_and_gets_nowhere(eyes: Eyes, width: str):
    page = eyes.open("data:text/html,<p>here", wide=width == "desk")
    page.evaluate("url => fetch(url, {mode: 'no-cors'}).catch(() => null)", ELSEWHERE)
    asked, failed = eyes.complaints
    assert asked == f"asked for {ELSEWHERE}"
    assert "ERR_NAME_NOT_RESOLVED" in failed
    eyes.complaints.clear()


def test_a_warning_and_an_error_are_noticed(eyes: Eyes):
    page = eyes.open("data:text/html,<p>here")
    with page.expect_event("pageerror"):
        page.evaluate("() => { console.warn('careful'); setTimeout(() => { throw Error('bad') }) }")
    assert sorted(eyes.complaints) == ["error: bad", "warning: careful"]
    eyes.complaints.clear()
