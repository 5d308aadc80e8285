"""Markdown of models: shown as what it means; it is text, with links that say where they lead."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from playwright.sync_api import Locator, expect

from browser.conftest import Eyes
from browser.served_journal import choose, open_run, staged
from browser.test_hostile_text import check_harmless
from treefold import AgentFunction
from treefold.testing import ScriptedModel

agent = AgentFunction("agent", "Talks.", system_prompt="Talk.", user_prompt_template="Go.")

TEXT = """\
# Mills *and* ponds

The **wheel** turns for `4_5` hours, ~~never~~ ***always***; see snake_case_names and 2 * 3 * 4.

1. First
2. Second
   - inner [x](https://mills.example/a_b "A title")
   - [x] done

> quoted
> text

| Tide | Hours |
|------|------:|
| flood | 6 |
| ebb \\| flow | **4** |

```python
print("<b>" * 3)  # **not bold**
```

---
Visit https://tides.example/path?x=1, or <https://www.example.org>. \\*plain\\*
"""


@contextmanager
def said(eyes: Eyes, text: str) -> Generator[Locator, None, None]:
    """What is shown of a text that the model said."""
    with each_said(eyes, [text]) as all_shown:
        yield next(all_shown)


@contextmanager
def each_said(eyes: Eyes, texts: Sequence[str]) -> Generator[Iterator[Locator], None, None]:
    """What is shown of texts that the model said, each in its run, one after another."""
    with staged(agent, script=ScriptedModel(*texts)) as stage:
        keys = [f"text-{at:02}" for at, _ in enumerate(texts)]
        for key in keys:
            stage.runtime.invoke(agent, key=key).result(60)
        page = eyes.open(stage.url)

        def shown() -> Iterator[Locator]:
            for key in keys:
                open_run(page, key)
                detail = choose(page, "agent")
                yield detail.get_by_label("Transcript").locator("li.part.text > .what").first
                page.get_by_role("link", name="All runs", exact=True).click()

        yield shown()


def test_a_text_is_shown_as_what_its_marks_mean(eyes: Eyes):
    with said(eyes, TEXT) as shown:
        expect(shown).to_match_aria_snapshot("""
          - paragraph:
            - text: Mills
            - emphasis: and
            - text: ponds
          - paragraph:
            - text: The
            - strong: wheel
            - text: turns for
            - code: "4_5"
            - text: hours,
            - deletion: never
            - strong:
              - emphasis: always
            - text: ; see snake_case_names and 2 * 3 * 4.
          - list:
            - listitem:
              - paragraph: First
            - listitem:
              - paragraph: Second
              - list:
                - listitem:
                  - paragraph:
                    - text: inner
                    - link "x"
                    - text: (mills.example)
                - listitem:
                  - paragraph: ☑ done
          - blockquote:
            - paragraph: quoted text
          - region "Table":
            - table:
              - rowgroup:
                - row "Tide Hours"
              - rowgroup:
                - row "flood 6"
                - row "ebb | flow 4"
          - text: python
          - button "Copy this code"
          - region "Code":
            - code: "print(\\"<b>\\" * 3) # **not bold**"
          - separator
          - paragraph:
            - text: Visit
            - link "https://tides.example/path?x=1"
            - text: ", or"
            - link "https://www.example.org"
            - text: . *plain*
        """)
        eyes.picture(shown.page)
        links = shown.get_by_role("link")
        assert [link.get_attribute("href") for link in links.all()] == [
            "https://mills.example/a_b",
            "https://tides.example/path?x=1",
            "https://www.example.org/",
        ]
        assert {link.get_attribute("rel") for link in links.all()} == {
            "noopener noreferrer nofollow"
        }
        # As it is, on request; the choice is remembered.
        shown.page.get_by_role("button", name="Markdown").click()
        expect(shown.locator("pre")).to_contain_text("# Mills *and* ponds")
        shown.page.reload()
        expect(shown.locator("pre")).to_contain_text("# Mills *and* ponds")


HOSTILE = """\
[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,<script>alert(1)</script>)
[d](//evil.example/x) [e](/api/journal) [f](#/run/1) [g](vbscript:x) [h](\x01javascript:alert(1))
[i](java\tscript:alert(1)) [j](file:///etc/passwd) [k](blob:https://x/y) [l](https://)
![m](http://evil.example/pixel.png) ![n](data:image/svg+xml,<svg onload=alert(1)>)
<javascript:alert(1)> <img src=x onerror=alert(1)> <b>bold</b> &lt;i&gt;
[o](https://mills.example@evil.example/) [https://mills.example/](https://evil.example/)
[p](https://evil.example/"onclick="alert(1)) `<img src=x onerror=alert(1)>`

```"><img src=x onerror=alert(1)>
</code></pre><script>alert(1)</script>
"""


def test_only_links_with_safe_schemes_can_be_followed_and_their_hosts_are_named(eyes: Eyes):
    with said(eyes, HOSTILE) as shown:
        expect(shown).to_contain_text("[a](javascript:alert(1))")
        expect(shown).to_contain_text("<b>bold</b> &lt;i&gt;")
        expect(shown).to_contain_text("o (evil.example)")
        expect(shown).to_contain_text("https://mills.example/ (evil.example)")
        links = [link.get_attribute("href") or "" for link in shown.locator("a").all()]
        assert [link for link in links if not link.startswith(("http://", "https://"))] == []
        assert len(links) == 4  # the image, o, the one with another address as its text, p
        assert shown.locator("*[onclick], *[onerror]").count() == 0
        check_harmless(shown.page)


LINKS = {
    "[https://bank.com/login](https://bank.co/login)": "https://bank.com/login (bank.co)",
    "[https://bank.co.evil/](https://bank.co/)": "https://bank.co.evil/ (bank.co)",
    "[https://bank.co:8080/](https://bank.co/)": "https://bank.co:8080/ (bank.co)",
    "[https://bank.com@bank.co/](https://bank.co/)": "https://bank.com@bank.co/ (bank.co)",
    "[see //bank.co here](https://bank.co/)": "see //bank.co here (bank.co)",
    "[http://bank.co/](https://bank.co/)": "http://bank.co/ (bank.co)",
    "https://bank.com@bank.co/": "https://bank.com@bank.co/ (bank.co)",
    "[https://b\u0430nk.co/](https://b\u0430nk.co/)": "https://b\u0430nk.co/ (xn--bnk-6cd.co)",
    "[a@bank.com](mailto:a@bank.co)": "a@bank.com (a@bank.co)",
    "[b.a@bank.co](mailto:a@bank.co)": "b.a@bank.co (a@bank.co)",
    "[https://bank.co/login](https://bank.co/login)": "https://bank.co/login",
    "[https://bank.co](https://bank.co/login)": "https://bank.co",
    "[HTTPS://Bank.co?x=1](https://bank.co/)": "HTTPS://Bank.co?x=1",
    "https://bank.co/login": "https://bank.co/login",
    "[a@bank.co](mailto:a@bank.co)": "a@bank.co",
    "<mailto:a@bank.co>": "mailto:a@bank.co",
}


def test_a_link_names_its_host_unless_its_text_is_an_address_there(eyes: Eyes):
    with said(eyes, "\n".join(f"- {link}" for link in LINKS)) as shown:
        expect(shown.locator("li")).to_have_count(len(LINKS))
        assert [item.inner_text() for item in shown.locator("li").all()] == list(LINKS.values())


PIECES = [
    "[", "![", "*", "**a ", "_a", "`", "`` ` ", "> ", "- ", "[a](", "<", "| a ", "#", "\\", "~~a",
]  # fmt: skip


def test_marks_without_an_end_do_not_stop_the_page(eyes: Eyes):
    long = [(piece * 10_000)[:10_000] for piece in PIECES]
    with each_said(eyes, [f"{text}\n{text[:2_000]}" for text in long]) as all_shown:
        for piece, shown in zip(PIECES, all_shown, strict=True):
            more = shown.get_by_role("button", name="Show all")
            more.click()
            expect(more).to_have_count(0)
            assert shown.locator("*").count() < 8_000, piece
            check_harmless(shown.page)


def test_deeply_nested_marks_are_cut_off_and_stay_readable(eyes: Eyes):
    text = (
        "> " * 40 + "deep\n\n" + "\n".join("  " * depth + f"- item {depth}" for depth in range(25))
    )
    with said(eyes, text) as shown:
        expect(shown).to_contain_text("deep")
        expect(shown).to_contain_text("item 24")
        assert shown.locator("li li li li li li li li").count() == 0
