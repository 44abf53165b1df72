"""The status page: its appliance, the services' current activity, and its use on narrow screens."""

import json
import os
import re

import raw_nbd
import service_c_test
from harness import (BOUND_SECONDS, MIB, expect, expect_in, expect_true, free_port, need_tools, test,
                     wait_for)
from browser import Browser
from http_test import TOKEN, get
from raw_nbd import RawClient
from unit_texts import unit_texts

VOLUMES = [{"name": "ram0", "bytes": "64 MiB"}, {"name": "a-second-volume-of-a-long-name",
                                                 "bytes": "1 MiB"}]


def start(box, **http):
    configuration = box.configuration()
    configuration["blockd"]["volume"] = VOLUMES
    port = free_port()
    configuration["appliance"]["name"] = "pump-station-7"
    configuration["http"] = {"listen": [f"tcp:127.0.0.1:{port}"], **http}
    configuration["kvd"] = {"listen": [f"unix:{box.path('kvd.sock')}"], "cache_bytes": 8 * MIB}
    configuration["control"] = {}
    return box.appliance(configuration), port


def show(box, port, width):
    browser = Browser(box, f"http://127.0.0.1:{port}/", width=width)
    browser.wait("now && before && !document.getElementById('all').hidden", "two looks")
    return browser


def cell(table, row, head):
    """An expression for the text of that cell."""
    return (f"((table) => table && [...table.rows].filter(row => row.cells[0].textContent === '{row}')"
            f".map(row => [...row.cells].find(cell => cell.dataset.head === '{head}').textContent)[0])"
            f"([...document.querySelectorAll('#now table')].find(each => (each.caption || "
            f"{{textContent: ''}}).textContent === '{table}'))")


@test()
def the_page_says_whose_it_is(box):
    """The title and the first heading have the appliance's name, from the start. Clients that need
    a token do not see it without the token."""
    token = box.write_secret("token", TOKEN)
    _, port = start(box, token_file=token)
    page = get(port, "/", Authorization=f"Bearer {TOKEN}")[1]
    expect_in("<title>pump-station-7</title>", page, "its title")
    first = re.search(r"<body>\s*(<[^\n]*)", page)[1]
    expect_true(first.startswith('<h1><span id="name">pump-station-7</span>'), f"first: {first}")
    expect_true("pump-station" not in get(port, "/")[1], "it is not told to strangers")
    browser = Browser(box, f"http://127.0.0.1:{port}/")
    browser.wait("document.title === '! A token is needed - bedplate'", "the title without it")
    browser.value(f"document.getElementById('token').value = '{TOKEN}';"
                  "document.getElementById('ask').requestSubmit()")
    # The refused requests may raise an alert, which changes the title.
    browser.wait("document.title.endsWith('pump-station-7') && document.querySelector('h1').innerText"
                 ".startsWith('pump-station-7')", "its name, with the token")


@test()
def what_services_do_is_seen_first(box):
    """The page has a row for each volume, and for each service's connections, with rates and
    queues."""
    appliance, port = start(box)
    browser = show(box, port, 1280)
    heads = browser.value("[...document.querySelectorAll('#now table')].map(table => (table.caption || "
                          "{textContent: 'services'}).textContent + ': ' + [...table.rows[0].cells]"
                          ".map(cell => cell.textContent).join(' ')).join('\\n')").splitlines()
    expect_in("blockd volumes: volumes operations/s bytes/s p99 queue", heads, "tables")
    expect_in("services: service clients requests/s sent/s received/s p99", heads, "tables")
    expect(browser.value(cell("blockd volumes", "ram0", "queue")), "0", "what waits at first")
    bedplate_ctl(box, appliance, "blockd.hold", "volume=ram0", "on=true")
    with RawClient(appliance.address()) as client:
        client.greet().go()
        for i in range(3):
            client.request(raw_nbd.READ, 4096 * i, 4096)
        browser.wait(f"{cell('blockd volumes', 'ram0', 'queue')} === '3'", "what waits")
        expect(browser.value(cell("", "blockd", "clients")), "1", "clients of blockd")
        expect(browser.value(cell("", "kvd", "clients")), "0", "clients of kvd")
        # Requests continue until the page shows them.
        bedplate_ctl(box, appliance, "blockd.hold", "volume=ram0", "on=false")
        for _ in range(3):
            expect(client.reply().error, 0, "the answer")

        def is_seen():
            client.request(raw_nbd.READ, 0, 64 * 1024)
            expect(client.reply().error, 0, "the answer")
            told = {head: browser.value(cell("blockd volumes", "ram0", head))
                    for head in ("operations/s", "bytes/s", "p99")}
            return (told["operations/s"] not in ("0", "–") and told["bytes/s"].endswith("iB")
                    and re.fullmatch(r"≤ [\d.]+ (ns|us|ms|s)", told["p99"]))
        wait_for(is_seen, "the volume's rates")
    other = "a-second-volume-of-a-long-name"
    expect([browser.value(cell("blockd volumes", other, head))
            for head in ("operations/s", "bytes/s", "p99", "queue")], ["0", "0 bytes", "–", "0"],
           "the other volume, which nobody asks")
    wait_for(lambda: browser.value(cell("blockd volumes", "ram0", "queue")) == "0", "nothing waits")


@test()
def a_service_of_somebody_else_is_there_by_itself(box):
    """A service in C that marks its counters for the page (apps/examples/store.c)."""
    path, port = service_c_test.configure(box)
    http_port = free_port()
    with open(path, "a", encoding="utf-8") as file:
        file.write(f'\n[http]\nlisten = ["tcp:127.0.0.1:{http_port}"]\n')
    store = service_c_test.Running(box, path)
    browser = show(box, http_port, 1280)
    expect(browser.value(cell("", "store", "requests/s")), "0", "what it does at first")
    with service_c_test.connect(port) as client:
        def is_seen():
            service_c_test.ask(client, "get pear\n" * 100, 100)
            return browser.value(cell("", "store", "requests/s")) not in ("0", "–")
        wait_for(is_seen, "what it does")
    store.stop()


def bedplate_ctl(box, appliance, *words):
    box.bedplate("ctl", "--directory", appliance.runtime_directory, *words)


# The tables that are cut off, and the words of names that break across lines.
CUT_OFF = """[...document.querySelectorAll('.scroll')].filter(box => box.clientWidth &&
    box.scrollWidth > box.clientWidth).map(box => box.innerText)"""
BROKEN_WORDS = """[...document.querySelectorAll('tbody th')].flatMap(cell => {
  const broken = [], walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const word of walker.currentNode.textContent.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      if (range.getClientRects().length > 1) broken.push(word[0]);
    }
  }
  return broken;
})"""


@test()
def it_writes_numbers_as_all_else_does(box):
    _, port = start(box)
    browser = show(box, port, 1280)
    rows = unit_texts("bytes", "ns", "count")
    written = browser.value(f"{json.dumps(rows)}.map(([kind, number]) => kind === 'bytes' ? "
                            "bytes(number) : kind === 'ns' ? seconds(number / 1e9) : short(number))")
    expect(written, [text for _, _, text in rows], "what the page writes")


@test()
def it_can_be_read_on_a_narrow_screen(box):
    """At 400 pixels nothing is cut off, and the important parts come first. Owners that are always
    full have no bar. Labels that do not fit are left out."""
    _, port = start(box)
    browser = show(box, port, 400)
    browser.value("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    browser.wait("[...document.querySelectorAll('details')].every(each => each.querySelector('td'))",
                 "all counters")
    expect_true(browser.value("document.scrollingElement.scrollWidth <= innerWidth"),
                "the page is no wider than the screen")
    expect(browser.value(CUT_OFF), [], "tables of which something is cut off")
    expect(browser.value(BROKEN_WORDS), [], "names that break inside a word")
    order = browser.value("[...document.querySelectorAll('h1, #state, #signs, h2')]"
                          ".filter((each, i, all) => !i || "
                          "all[i - 1].compareDocumentPosition(each) & 4)"
                          ".map(each => each.id || each.textContent)")
    expect(order[1:],
           ["state", "signs", "Services", "Memory", "Shards", "All counters", "log-title"],
           "what comes after what")
    fold = browser.value("document.querySelector('#now td').getBoundingClientRect().bottom")
    expect_true(fold < 300, f"what services do is to be seen at once: {fold}")
    bars = browser.value("[...document.querySelectorAll('#owners tbody tr')].map(row => "
                         "[row.cells[0].textContent, !!row.querySelector('.bar')])")
    barred = {name for name, has_bar in bars if has_bar}
    expect_in("heap", barred, "owners with a bar")
    expect([name for name in barred if "volume" in name or "cache" in name or "kvd" in name], [],
           "bars of what is full by its nature")
    expect_true(len(bars) > len(barred) + 2, f"there are others: {bars}")
    labels = browser.value("[...document.querySelectorAll('#map div')].map(part => "
                           "[part.textContent, part.scrollWidth - part.clientWidth])")
    expect([label for label in labels if label[0] and label[1] > 0], [], "labels that do not fit")
    expect_true({"", "heap"} <= {label[0] for label in labels}, f"some fit, some do not: {labels}")
    browser.value("document.getElementById('filter').value = 'volumes';"
                  "document.getElementById('filter').dispatchEvent(new Event('input'))")
    expect(browser.value(CUT_OFF), [], "tables of which something is cut off, filtered")
    # Narrower than any table: the tables become lists.
    browser.ask("Emulation.setDeviceMetricsOverride", width=240, height=900, deviceScaleFactor=1,
                mobile=False)
    browser.wait("innerWidth === 240 && !!document.querySelector('#now .cards')", "lists")
    expect(browser.value(CUT_OFF), [], "lists of which something is cut off")
    expect_true(browser.value("document.scrollingElement.scrollWidth <= innerWidth"),
                "the page is no wider than that")


@test()
def a_picture_is_taken_by_one_line(box):
    """Chromium takes a picture of the page with its numbers, and ends."""
    need_tools("chromium")
    _, port = start(box)
    picture = box.path("picture.png")
    chromium = ["chromium", "--headless", "--no-sandbox", "--disable-gpu",
                f"--user-data-dir={box.path('browser')}", "--window-size=400,900"]
    url = f"http://127.0.0.1:{port}/"
    box.run(*chromium, f"--screenshot={picture}", url)
    expect_true(os.path.getsize(picture) > 20_000, f"{os.path.getsize(picture)} bytes of a picture")
    # With a time budget Chromium uses a virtual clock, which stops while the page waits for an
    # endless stream.
    for words, is_average in (([], True), (["--virtual-time-budget=20000"], False)):
        shown = box.run(*chromium, *words, "--dump-dom", url).stdout
        expect_in("blockd volumes</caption>", shown, "the page as it was seen")
        expect_in('<main id="all">', shown, "the page as it was seen")
        expect("<p id=\"since\">" in shown, is_average, f"whether it shows averages, with {words}")
