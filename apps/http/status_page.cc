// Tested by tests/system/http_test.py.
#include "apps/http/status_page.h"

#include <algorithm>
#include <iterator>

#include "apps/boot/counter_signs.h"
#include "apps/boot/piece.h"
#include "platform/assert.h"

namespace bedplate {

// tests/system/http_test.py says what they must be.
const std::string_view kStatusPageHeaders =
    "Content-Security-Policy: default-src 'none'; "
    "script-src 'sha256-v/CFpC1soh/v08c79ticPRBjw2ohobc/nzF1VddCy1U='; "
    "style-src 'sha256-GrK5b6Pa6c2iIn8tiu9qTVcZzIq/TEg4MldO/O4pll8='; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n";

namespace {

constexpr std::string_view kPageBegin = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Bedplate</title>
<style>
:root { color-scheme: light dark; --line: #8884; --full: #3a78c2; --bad: #c0392b; --good: #2e8b57; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1rem auto; max-width: 72rem;
       padding: 0 1rem; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; }
h2 { font-size: 1.05rem; margin: 1.4rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: GrayText; }
th, td { text-align: right; padding: .15rem .5rem; border-bottom: 1px solid var(--line);
         font-variant-numeric: tabular-nums; font-weight: normal; }
td { white-space: nowrap; }
th:first-child { text-align: left; overflow-wrap: anywhere; min-width: 6rem; }
thead th { color: GrayText; }
.scroll { overflow-x: auto; }
.bar { display: inline-block; width: 8rem; height: .8rem;
       border: 1px solid var(--line); vertical-align: middle; margin-right: .5rem; }
.share { display: inline-block; width: 3rem; }
.bar i { display: block; height: 100%; background: var(--full); }
#map { display: flex; height: 2.2rem; border: 1px solid var(--line); }
#map div { overflow: hidden; white-space: nowrap; font-size: .75rem; padding: .1rem .2rem;
           border-right: 1px solid Canvas; box-sizing: border-box; min-width: 1px; }
#state { font-weight: bold; }
#state.bad { border: 2px solid; border-radius: .3rem; padding: .05rem .5rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
#signs { padding-left: 1.2rem; margin: .3rem 0; }
#log { max-height: 22rem; overflow: auto; border: 1px solid var(--line); padding: .4rem .5rem;
       font-size: .85em; margin: 0; }
#log:empty::before { content: "nothing"; color: GrayText; }
summary { cursor: pointer; padding: .2rem 0; }
input, button { font: inherit; }
@media (max-width: 40rem) {
  body { font-size: 13px; } .bar { width: 3rem; } .share { width: 2.5rem; }
  th, td { padding: .15rem .25rem; } th:first-child { min-width: 11rem; }
}
@media (prefers-color-scheme: dark) {
  :root { --full: #6aa5e8; --bad: #ff8a7a; --good: #7bd69b; }
}
</style>
<h1>Bedplate <span id="host"></span></h1>
<p><span id="state" role="status")html";

constexpr std::string_view kPageHead = R"html(</span> <span id="age"></span>
<button id="hold" type="button" aria-pressed="false">Hold</button></p>
<form id="ask" hidden><label>Token <input id="token" type="password" autocomplete="off"></label>
<button>Show</button></form>
<noscript><p>Without JavaScript: <a href="/metrics">all numbers as text</a>,
<a href="/signs">what needs a look</a>, <a href="/log">the log</a>.</p></noscript>
<ul id="signs" aria-label="What needs a look">)html";

constexpr std::string_view kPageMiddle = R"html(</ul>
<main id="all" hidden>
<h2>Pool</h2>
<div id="map" role="img" aria-label="The pool by owner; the table has the numbers"></div>
<div id="owners" class="scroll"></div>
<h2>Shards</h2>
<div id="shards" class="scroll"></div>
<h2>All counters</h2>
<p><label>Filter <input id="filter" type="search"></label>
<a href="/metrics">as text</a></p>
<div id="rest"></div>
</main>
<h2 id="log-title">Log</h2>
<pre id="log" tabindex="0" aria-labelledby="log-title">)html";

constexpr std::string_view kPageEnd = R"html(</pre>
<script>
"use strict";
const by = id => document.getElementById(id);
by("host").textContent = location.host;
let before = null, now = null, token = "", held = false;

// [{name, labels, value}] and each metric's help, of Prometheus' text.
function parse(text) {
  const samples = new Map(), help = new Map();
  for (const line of text.split("\n")) {
    const about = /^# HELP (\S+) (.*)$/.exec(line);
    if (about) { help.set(about[1], about[2].replace(/\\n/g, "\n").replace(/\\\\/g, "\\")); }
    const found = /^(\w+)(\{.*\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const each of (found[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[each[1]] = each[2].replace(/\\(.)/g, (_, c) => c === "n" ? "\n" : c);
    }
    samples.set(found[1] + (found[2] || ""), {name: found[1], labels, value: Number(found[3])});
  }
  return {samples, help, at: performance.now()};
}
function of(name, label, value) {
  for (const each of now.samples.values()) {
    if (each.name === name && (!label || each.labels[label] === value)) return each;
  }
}
const keyOf = sample => { for (const [key, each] of now.samples) if (each === sample) return key; };
// By the second, since the look before; of a process that began anew: nothing.
function rate(key) {
  const then = before && before.samples.get(key);
  const change = then ? now.samples.get(key).value - then.value : -1;
  return change < 0 ? null : change * 1000 / (now.at - before.at);
}
function short(number) {
  if (Math.abs(number) >= 1e5) {
    const power = Math.min(4, Math.floor(Math.log10(Math.abs(number)) / 3));
    return (number / 10 ** (3 * power)).toFixed(1) + " " + "_kMGT"[power];
  }
  return String(Number.isInteger(number) ? number : Number(number.toPrecision(3)));
}
function bytes(number) {
  let power = 0;
  while (number >= 1024 && power < 4) { number /= 1024; ++power; }
  const unit = ["B", "KiB", "MiB", "GiB", "TiB"][power];
  return number.toFixed(power && number < 100 ? 1 : 0) + " " + unit;
}
function seconds(number) {
  if (number < 1e-6) return (number * 1e9).toFixed(0) + " ns";
  if (number < 1e-3) return (number * 1e6).toFixed(1) + " µs";
  return number < 1 ? (number * 1e3).toFixed(1) + " ms" : short(number) + " s";
}
function value(name, number) {
  const is = part => name.includes(part) && !name.endsWith("_count");  // of a histogram
  return is("_bytes") ? bytes(number) : is("_seconds") ? seconds(number) : short(number);
}

function element(tag, text, more) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  return Object.assign(made, more);
}
function table(caption, heads, rows) {
  const made = element("table"), head = element("tr"), body = element("tbody");
  made.append(element("caption", caption));
  for (const each of heads) head.append(element("th", each, {scope: "col"}));
  const top = element("thead");
  top.append(head);
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, i) => {
      const place = element(i ? "td" : "th", undefined, i ? {} : {scope: "row"});
      place.append(cell);
      line.append(place);
    });
    body.append(line);
  }
  made.append(top, body);
  return made;
}
// An area that is planned is full from the start: only of the heap and of shards that is bad.
function bar(share, isBadFull) {
  const made = element("span"), frame = element("span", undefined, {className: "bar"});
  const part = element("i");
  share = Math.min(1, Math.max(0, share));
  part.style.width = 100 * share + "%";
  if (isBadFull && share > 0.9) part.style.background = "var(--bad)";
  frame.append(part);
  made.append(frame, element("span", (100 * share).toFixed(0) + " %", {className: "share"}));
  return made;
}

function showPool() {
  const owners = [...now.samples.values()].filter(s => s.name === "bedplate_owner_bytes");
  const total = owners.reduce((sum, each) => sum + each.value, 0);
  by("map").replaceChildren(...owners.map((each, i) => {
    const name = each.labels.owner, part = element("div", name, {title: name});
    part.style.width = 100 * each.value / total + "%";
    part.style.background = `hsl(${(i * 67 + 210) % 360} 45% 50% / .35)`;
    return part;
  }));
  by("owners").replaceChildren(table("What each owner has, and what of it is used",
    ["owner", "planned", "used", "share"], owners.map(each => {
      const used = of("bedplate_owner_used_bytes", "owner", each.labels.owner);
      return [each.labels.owner, bytes(each.value), used ? bytes(used.value) : "",
              used ? bar(used.value / each.value, each.labels.owner === "heap") : ""];
    })));
}
function showShards() {
  const names = [...now.samples.values()].filter(s => s.name === "bedplate_shard_asleep");
  by("shards").replaceChildren(table("Busy: the share of the last second in which it had work",
    ["shard", "busy", "rounds/s", "system calls/s", "stalls", "longest"], names.map(each => {
      const name = each.labels.shard;
      const sample = what => of("bedplate_shard_" + what, "shard", name);
      const pace = what => { const s = sample(what); return s ? rate(keyOf(s)) : null; };
      const rounds = pace("iterations_total");
      const busy = pace("busy_seconds_total"), stalls = sample("stalls_total");
      const longest = sample("stall_longest_seconds");
      return [name, busy === null ? "" : bar(busy, true), rounds === null ? "" : short(rounds),
              short(pace("system_calls_total") || 0), stalls ? short(stalls.value) : "",
              longest ? seconds(longest.value) : ""];
    })));
}
// The value below which that share of what came since the look before lies; buckets are sums.
function percentile(buckets, share) {
  const counts = buckets.map(([le, key]) => {
    const then = before && before.samples.get(key);
    return [le, now.samples.get(key).value - (then ? then.value : 0)];
  });
  const all = counts.length ? counts[counts.length - 1][1] : 0;
  const found = all > 0 && counts.find(([, count]) => count >= share * all);
  return found ? found[0] : null;
}
const ours = new Set(["pool", "way", "segment", "owner", "heap", "shard", "source", "http"]);
const parts = new Map();  // each group's element stays, so that the keyboard's focus stays
function showRest() {
  const groups = new Map(), histograms = new Map(), wanted = by("filter").value.toLowerCase();
  for (const [key, each] of now.samples) {
    const bucket = /^(.*)_bucket$/.exec(each.name);
    if (bucket) {
      const {le, ...labels} = each.labels, id = bucket[1] + JSON.stringify(labels);
      if (!histograms.has(id)) histograms.set(id, []);
      histograms.get(id).push([Number(le.replace("+Inf", "Infinity")), key]);
      continue;
    }
    const pace = /_(total|count)$/.test(each.name) ? rate(key) : null;
    if (wanted ? !key.toLowerCase().includes(wanted) : /_sum$/.test(each.name)) continue;
    const group = each.name.split("_")[1];
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push([key, each, pace]);
  }
  for (const [group, entries] of groups) {
    if (!parts.has(group)) {
      const part = element("details", undefined, {open: !ours.has(group)});
      part.append(element("summary"), element("div", undefined, {className: "scroll"}));
      parts.set(group, part);
    }
    const part = parts.get(group);
    if (wanted) part.open = true;
    part.firstChild.textContent = `${group} (${entries.length})`;
    part.lastChild.replaceChildren(table("", ["counter", "value", "per second", "p50", "p99"],
      entries.map(([key, each, pace]) => {
        const base = each.name.replace(/_count$/, "");
        const buckets = histograms.get(base + JSON.stringify(each.labels)) || [];
        const cut = share => {
          const most = percentile(buckets, share);
          return most === null ? "" : "≤ " + value(base, most);
        };
        const name = element("span", key.replace(/^bedplate_/, "").replace("{}", ""),
                             {title: now.help.get(base) || ""});
        return [name, value(each.name, each.value), pace === null ? "" : value(each.name, pace),
                cut(0.5), cut(0.99)];
      })));
  }
  const shown = [...groups.keys()].map(group => parts.get(group));
  const rest = by("rest");
  if (shown.length !== rest.children.length || shown.some((part, i) => part !== rest.children[i])) {
    rest.replaceChildren(...shown);
  }
}
let signCount = 0;
function showSigns(text) {
  const lines = text.split("\n").filter(line => line);
  signCount = lines.length;
  by("signs").replaceChildren(...lines.map(line => element("li", line, {className: "bad"})));
}
function showNumbers(text) {
  before = now;
  now = parse(text);
  showPool();
  showShards();
  showRest();
  by("all").hidden = false;
  by("age").textContent = "";
}
// Its end stays in sight for those that look at its end.
function showLog(text) {
  const log = by("log"), isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  if (text !== log.textContent) log.textContent = text;
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}
function tell(text, isGood) {
  by("state").textContent = text;
  by("state").className = isGood ? "good" : "bad";
  document.title = isGood ? "Bedplate" : `! ${text} - Bedplate`;
}
// As the page itself says before its first look: write_state() in status_page.cc.
function tellState(isReady) {
  const look = signCount ? signCount + (signCount === 1 ? " needs a look" : " need a look") : "";
  const all = [isReady ? "" : "Draining, or not ready yet", look].filter(each => each);
  tell(all.join("; ") || "Ready", !all.length);
}
async function look() {
  const headers = token ? {Authorization: "Bearer " + token} : {};
  try {
    const [numbers, ready, signs, log] = await Promise.all(["/metrics", "/readyz", "/signs", "/log"]
      .map(path => fetch(path, {headers, cache: "no-store"})));
    by("ask").hidden = numbers.status !== 401;
    if (!numbers.ok) {
      tell(numbers.status === 401 ? "A token is needed" : `Answers ${numbers.status}`, false);
    } else {
      const texts = await Promise.all([signs, log, numbers].map(each => each.text()));
      if (isLive) return;
      showSigns(texts[0]);
      tellState(ready.ok);
      showLog(texts[1]);
      showNumbers(texts[2]);
    }
  } catch (error) {
    tell("Does not answer", false);
    const age = now ? (performance.now() - now.at) / 1000 : 0;
    if (now) by("age").textContent = `the numbers are ${seconds(age)} old`;
  }
}
// Events, a round each second. Until they come, and where none come (too many listen, or a token is
// needed, which EventSource cannot bring), the page asks by itself.
let source = null, isLive = false, ticks = 0;
function quiet() {
  if (source) source.close();
  source = null;
  isLive = false;
}
function listen() {
  const lines = [];
  source = new EventSource("/events");
  source.onerror = quiet;
  source.addEventListener("signs", event => showSigns(event.data));
  source.addEventListener("log", event => {
    lines.push(...event.data.split("\n"));
    lines.splice(0, lines.length - 200);
    showLog(lines.join("\n") + "\n");
  });
  source.addEventListener("metrics", event => {
    isLive = true;
    tellState(true);
    showNumbers(event.data);
  });
}
function tick() {
  const isStale = isLive && performance.now() - now.at > 5000;
  if (held || document.hidden) {
    quiet();
    ticks = 0;
    return;
  }
  if (isStale) quiet();
  if (!isLive) look();
  if (!source && !token && by("ask").hidden && ticks++ % 10 === 0) listen();
}
by("ask").addEventListener("submit", event => {
  event.preventDefault();
  token = by("token").value;
  look();
});
by("hold").addEventListener("click", () => {
  held = !held;
  by("hold").setAttribute("aria-pressed", held);
  by("hold").textContent = held ? "Go on" : "Hold";
});
by("filter").addEventListener("input", () => now && showRest());
tick();
setInterval(tick, 1000);
</script>
)html";
constexpr size_t kStateBytesMax = 128;
static_assert(kPageBegin.size() + kStateBytesMax + kPageHead.size() + kPageMiddle.size() <=
                  StatusPage::kPieceBytesMin &&
              kPageEnd.size() <= StatusPage::kPieceBytesMin);

// The rest of the element of the state, in the words that the page's program goes on with.
void write_state(const std::optional<StatusPage::Told>& told, const CountersView& counters,
                 Piece* piece) noexcept {
  if (!told) {
    piece->text(" class=\"bad\">A token is needed");
    return;
  }
  const uint32_t sign_count = raised_sign_count(counters);
  piece->text(told->is_ready && sign_count == 0 ? " class=\"good\">Ready" : " class=\"bad\">");
  if (!told->is_ready) piece->text("Draining, or not ready yet");
  if (sign_count == 0) return;
  piece->text(told->is_ready ? "" : "; ").number(sign_count);
  piece->text(sign_count == 1 ? " needs a look" : " need a look");
}

}  // namespace

size_t StatusPage::write(std::span<char> to) noexcept {
  BP_ASSERT(to.size() >= kPieceBytesMin);
  constexpr size_t kRoomBytes = std::max(SignLines::kPieceBytesMin, LogLines::kPieceBytesMin);
  constexpr std::string_view kTexts[] = {kPageBegin, {}, kPageHead, {}, kPageMiddle, {}, kPageEnd};
  constexpr uint32_t kState = 1, kSigns = 3;
  size_t bytes = 0;
  while (part_ < std::size(kTexts)) {
    const std::span<char> rest = to.subspan(bytes);
    const std::string_view text = kTexts[part_];
    size_t more = 0;
    if (!text.empty()) {
      if (text.size() > rest.size()) break;
      bytes += text.copy(rest.data(), rest.size());
    } else if (part_ == kState) {
      if (rest.size() < kStateBytesMax) break;
      Piece piece(rest);
      write_state(told_, counters_, &piece);
      bytes += piece.bytes();
    } else if (told_) {
      if (rest.size() < kRoomBytes) break;
      more = part_ == kSigns ? signs_.write(rest) : log_.write(rest);
      bytes += more;
    }
    if (more == 0) ++part_;  // of lines, once there are no more
  }
  return bytes;
}

}  // namespace bedplate
