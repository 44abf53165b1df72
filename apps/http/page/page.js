"use strict";
const by = id => document.getElementById(id);
by("host").textContent = location.host;
let before = null, now = null, token = "", held = false;
let appliance = by("name").textContent;

function labelsOf(text) {
  const labels = {};
  for (const each of text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
    labels[each[1]] = each[2].replace(/\\(.)/g, (_, c) => c === "n" ? "\n" : c);
  }
  return labels;
}
// Parses Prometheus' text: {key, name, labels, value} by key and by name, each metric's help, the
// counters seen at a glance, and the text's time by this clock (ms) and by the appliance's (s).
function parse(text) {
  const samples = new Map(), named = new Map(), help = new Map(), glances = [];
  for (const line of text.split("\n")) {
    const about = /^# HELP (\S+) (.*)$/.exec(line);
    if (about) { help.set(about[1], about[2].replace(/\\n/g, "\n").replace(/\\\\/g, "\\")); }
    const glance = /^# GLANCE (\w+)(\{.*\})$/.exec(line);
    if (glance) glances.push({name: glance[1], ...labelsOf(glance[2])});
    const found = /^(\w+)(\{.*\})? (\S+)$/.exec(line);
    if (!found) continue;
    const key = found[1] + (found[2] || "");
    const sample = {key, name: found[1], labels: labelsOf(found[2] || ""), value: Number(found[3])};
    samples.set(key, sample);
    if (!named.has(sample.name)) named.set(sample.name, []);
    named.get(sample.name).push(sample);
  }
  const uptime = samples.get("bedplate_appliance_uptime_seconds{}").value;
  return {samples, named, help, glances, uptime, at: performance.now()};
}
const allOf = name => now.named.get(name) || [];
const of = (name, label, value) => allOf(name).find(each => each.labels[label] === value);
// The growth per second since the last update, at first since the start; nothing if the process has
// restarted.
function rate(key) {
  const then = before ? before.samples.get(key) : {value: 0};
  const change = then ? now.samples.get(key).value - then.value : -1;
  const time = now.uptime - (before ? before.uptime : 0);
  return change < 0 || time <= 0 ? null : change / time;
}
// The formats of format_rounded_bytes(), _ns() and _count() in platform/units.h.
const sizes = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"],
               [1, "bytes"]];
const times = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
const counts = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
// The first of `units` that fits at least `least` times, after rounding; else the last.
function unitOf(number, units, least) {
  return units.find(([one], i) => i + 1 === units.length
                    || number >= least * one - units[i + 1][0] / 2);
}
function rounded(number, most) {
  const tenths = Math.floor(number * 10 + 0.5);
  const isWhole = number === Math.floor(number) || tenths >= most;
  return isWhole ? String(Math.floor(number + 0.5)) : (tenths / 10).toFixed(1);
}
function short(number) {
  if (number > 0 && number < 0.05) return "<0.1";
  const [one, name] = unitOf(number, counts, 10);
  return rounded(number / one, one === 1 ? 100 : 1000) + name;
}
function inUnit(number, units) {
  const [one, name] = unitOf(number, units, 1);
  return rounded(number / one, 1000) + " " + name;
}
const bytes = number => inUnit(Math.round(number), sizes);
const seconds = number => inUnit(Math.round(number * 1e9), times);
function value(name, number) {
  const is = part => name.includes(part) && !name.endsWith("_count");  // of a histogram
  return is("_bytes") ? bytes(number) : is("_seconds") ? seconds(number) : short(number);
}

function element(tag, text, more) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  return Object.assign(made, more);
}
// A name that wraps only between its words, if it must.
function words(text) {
  const made = element("span");
  for (const part of text.split(/(?<=[_:/.,{-])/)) made.append(part, element("wbr"));
  return made;
}
function table(caption, heads, rows) {
  const made = element("table"), head = element("tr"), body = element("tbody");
  if (caption) made.append(element("caption", caption));
  for (const each of heads) {
    const [, what, pace] = /^(.*?)(\/s)?$/.exec(each), column = element("th", what, {scope: "col"});
    if (pace) column.append(element("wbr"), pace);
    head.append(column);
  }
  const top = element("thead");
  top.append(head);
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, i) => {
      const field = element(i ? "td" : "th", undefined, i ? {} : {scope: "row"});
      field.append(cell);
      field.dataset.head = heads[i];
      line.append(field);
    });
    body.append(line);
  }
  made.append(top, body);
  return made;
}
// Columns that do not fit are stacked, and stay stacked, since numbers change.
const tooNarrow = new Map();
function put(box, made) {
  const width = box.clientWidth, isNarrow = width > 0 && width <= (tooNarrow.get(box) || 0);
  made.classList.toggle("cards", isNarrow);
  box.replaceChildren(made);
  if (isNarrow || box.scrollWidth <= width) return;
  tooNarrow.set(box, width);
  made.classList.add("cards");
}
// A full bar is bad only for the heap and for shards.
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
  const owners = allOf("bedplate_owner_bytes");
  const total = owners.reduce((sum, each) => sum + each.value, 0);
  by("map").replaceChildren(...owners.map((each, i) => {
    const owner = each.labels.owner, part = element("div", owner, {title: owner});
    part.style.width = 100 * each.value / total + "%";
    part.style.background = `hsl(${(i * 67 + 210) % 360} 45% 50% / .35)`;
    return part;
  }));
  for (const part of by("map").children) {
    if (part.scrollWidth <= part.clientWidth) continue;
    part.textContent = "";
    part.className = "bare";
  }
  put(by("owners"), table("The memory of each owner, and the used part if not all of it is used",
    ["owner", "planned", "used", "share"], owners.map(each => {
      const used = of("bedplate_owner_used_bytes", "owner", each.labels.owner);
      return [words(each.labels.owner), bytes(each.value), used ? bytes(used.value) : "",
              used ? bar(used.value / each.value, each.labels.owner === "heap") : ""];
    })));
}
function showShards() {
  put(by("shards"), table("Busy: the share of the last second in which the shard had work",
    ["shard", "busy", "rounds/s", "system calls/s", "stalls", "longest"],
    allOf("bedplate_shard_asleep").map(({labels: {shard}}) => {
      const sample = what => of("bedplate_shard_" + what, "shard", shard);
      const pace = what => { const s = sample(what); return s ? rate(s.key) : null; };
      const rounds = pace("iterations_total");
      const busy = pace("busy_seconds_total"), stalls = sample("stalls_total");
      const longest = sample("stall_longest_seconds");
      const share = busy === null ? "" : bar(busy, true);
      return [words(shard), share, rounds === null ? "" : short(rounds),
              short(pace("system_calls_total") || 0), stalls ? short(stalls.value) : "",
              longest ? seconds(longest.value) : ""];
    })));
}
// The value below which this share of the events since the last update lies. Buckets are
// cumulative; buckets with the same bound are added.
function percentile(buckets, share) {
  const counts = new Map();
  for (const {key, labels, value} of buckets) {
    const then = before && before.samples.get(key);
    counts.set(labels.le, (counts.get(labels.le) || 0) + value - (then ? then.value : 0));
  }
  const all = counts.get("+Inf") || 0;
  for (const [le, count] of counts) {
    if (all > 0 && count >= share * all) return Number(le.replace("+Inf", "Infinity"));
  }
  return null;
}
const most = (name, limit) => limit === null ? "" : "≤ " + value(name, limit);

// The tables of services have the counters marked by their descriptions, a row for each instance;
// sets without instances are rows of one table.
function cellOf(found) {
  const {name, buckets, paces, level, word} = found;
  if (buckets) return most(name, percentile(buckets, 0.99)) || "–";
  if (paces) return paces.includes(null) ? "–" : value(name, paces.reduce((a, b) => a + b));
  return word || (level === undefined ? "" : value(name, level));
}
// The shard of each instance of the set that one shard serves: a label of its metric of facts.
function homesOf(owner, set) {
  const facts = allOf(`bedplate_${owner}_${set}_info`.replace(/\W/g, "_"));
  const served = facts.filter(({labels}) => labels[set] !== undefined && labels.shard);
  return new Map(served.map(({labels}) => [labels[set], labels.shard]));
}
const services = new Map();  // the permanent element of each table
function showServices() {
  const tables = new Map();
  for (const {name, owner, set, column} of now.glances) {
    const title = set ? `${owner} ${set}`.trim() : "";
    if (!tables.has(title)) {
      tables.set(title, {heads: new Set(), rows: new Map(), first: set || "service",
                         homes: homesOf(owner, set)});
    }
    const {heads, rows} = tables.get(title), isPace = name.endsWith("_total");
    const head = isPace ? column + "/s" : column, isTimes = now.named.has(name + "_bucket");
    heads.add(head);
    for (const {key, labels, value} of allOf(isTimes ? name + "_bucket" : name)) {
      const row = set ? labels[set] ?? labels.shard : owner || "runtime";
      if (!rows.has(row)) rows.set(row, new Map());
      const cells = rows.get(row);
      if (!cells.has(head)) cells.set(head, {name});
      const cell = cells.get(head);
      if (isTimes) (cell.buckets ||= []).push({key, labels, value});
      else if (isPace) (cell.paces ||= []).push(rate(key));
      else if (!labels.is) cell.level = (cell.level || 0) + value;
      else if (value) cell.word = labels.is;
    }
  }
  for (const [title, {heads, rows, first, homes}] of tables) {
    if (!services.has(title)) {
      services.set(title, element("div", undefined, {className: "scroll"}));
      by("now").append(services.get(title));
    }
    const told = homes.size ? ["shard"] : [];
    put(services.get(title), table(title, [first, ...told, ...heads],
      [...rows].map(([row, cells]) =>
        [words(row), ...told.map(() => words(homes.get(row) || "")),
         ...[...heads].map(head => cells.has(head) ? cellOf(cells.get(head)) : "")])));
  }
}
const ours = new Set(["appliance", "pool", "way", "segment", "owner", "heap", "shard", "source",
                      "http"]);
const parts = new Map();  // each group's element is permanent, so that keyboard focus stays
function showRest() {
  const groups = new Map(), histograms = new Map(), wanted = by("filter").value.toLowerCase();
  for (const [key, each] of now.samples) {
    const bucket = /^(.*)_bucket$/.exec(each.name);
    if (bucket) {
      const {le, ...labels} = each.labels, id = bucket[1] + JSON.stringify(labels);
      if (!histograms.has(id)) histograms.set(id, []);
      histograms.get(id).push(each);
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
      part.addEventListener("toggle", () => part.open && !part.lastChild.firstChild && showRest());
      part.append(element("summary"), element("div", undefined, {className: "scroll"}));
      parts.set(group, part);
    }
    const part = parts.get(group);
    if (wanted) part.open = true;
    part.firstChild.textContent = `${group} (${entries.length})`;
    if (!part.open) continue;
    put(part.lastChild, table("", ["counter", "value", "per second", "p50", "p99"],
      entries.map(([key, each, pace]) => {
        const base = each.name.replace(/_count$/, "");
        const buckets = histograms.get(base + JSON.stringify(each.labels)) || [];
        const counter = words(key.replace(/^bedplate_/, "").replace("{}", ""));
        counter.title = now.help.get(base) || "";
        return [counter, value(each.name, each.value), pace === null ? "" : value(each.name, pace),
                most(base, percentile(buckets, 0.5)), most(base, percentile(buckets, 0.99))];
      })));
  }
  const shown = [...groups.keys()].map(group => parts.get(group));
  const rest = by("rest");
  if (shown.length !== rest.children.length || shown.some((part, i) => part !== rest.children[i])) {
    rest.replaceChildren(...shown);
  }
}
let alertCount = by("signs").children.length;
function showAlerts(text) {
  const lines = text.split("\n").filter(line => line);
  alertCount = lines.length;
  by("signs").replaceChildren(...lines.map(line => element("li", line, {className: "bad"})));
}
let steadyCount = 0;  // consecutive updates in which this clock and the appliance's agreed
function showNumbers(text) {
  before = now;
  now = parse(text);
  if (before) {
    const own = (now.at - before.at) / 1000, real = now.uptime - before.uptime;
    steadyCount = Math.abs(own - real) < 0.2 * own ? steadyCount + 1 : 0;
  }
  by("since").hidden = before !== null;
  for (const {labels} of allOf("bedplate_appliance_info")) appliance = labels.name;
  by("name").textContent = appliance;
  by("all").hidden = false;
  showServices();
  showPool();
  showShards();
  showRest();
  by("age").textContent = "";
}
// The end of the log stays visible if it was visible before.
function showLog(text) {
  const log = by("log"), isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  if (text !== log.textContent) log.textContent = text;
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}
function tell(text, isGood) {
  by("state").textContent = text;
  by("state").className = isGood ? "good" : "bad";
  document.title = isGood ? appliance : `! ${text} - ${appliance}`;
}
// The text that the page shows before its first update: write_state() in status_page.cc.
function tellState(isReady) {
  const look = alertCount ? alertCount + (alertCount === 1 ? " needs a look" : " need a look") : "";
  const all = [isReady ? "" : "Draining, or not ready yet", look].filter(each => each);
  tell(all.join("; ") || "Ready", !all.length);
}
async function look() {
  const headers = token ? {Authorization: "Bearer " + token} : {};
  try {
    const paths = ["/metrics", "/readyz", "/signs", "/log"];
    const [numbers, ready, alerts, log] = await Promise.all(
      paths.map(path => fetch(path, {headers, cache: "no-store"})));
    by("ask").hidden = numbers.status !== 401;
    if (!numbers.ok) {
      tell(numbers.status === 401 ? "A token is needed" : `Answers ${numbers.status}`, false);
    } else {
      const texts = await Promise.all([alerts, log, numbers].map(each => each.text()));
      if (isLive) return;
      showAlerts(texts[0]);
      showLog(texts[1]);
      showNumbers(texts[2]);
      tellState(ready.ok);
    }
  } catch (error) {
    tell("Does not answer", false);
    const age = now ? (performance.now() - now.at) / 1000 : 0;
    if (now) by("age").textContent = `the numbers are ${seconds(age)} old`;
  }
}
// The first numbers arrive before the page has loaded, for programs that then take a screenshot.
function begin() {
  const request = new XMLHttpRequest();
  request.open("GET", "/metrics", false);
  try {
    request.send();
    if (request.status === 200) showNumbers(request.responseText);
  } catch (error) {}  // tick() will report it
  if (!now) tick();
  setInterval(tick, 1000);
}
// Events come in a round each second. Until they come, and if none come (too many clients listen,
// or a token is needed, which EventSource cannot send), the page polls. A stream has no end, and
// the time of a browser with a virtual clock (--virtual-time-budget) stops while it waits for one:
// there the page keeps polling.
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
  source.addEventListener("signs", event => showAlerts(event.data));
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
  if (steadyCount < 2 || source || token || !by("ask").hidden) return;
  if (ticks++ % 10 === 0) listen();
}
by("ask").addEventListener("submit", event => {
  event.preventDefault();
  token = by("token").value;
  look();
});
by("hold").addEventListener("click", () => {
  held = !held;
  by("hold").setAttribute("aria-pressed", held);
  by("hold").textContent = held ? "Resume" : "Hold";
});
by("filter").addEventListener("input", () => now && showRest());
begin();
