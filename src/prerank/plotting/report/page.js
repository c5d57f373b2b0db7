"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const levels = data.levels.map((x) => x / 1000);

  // ---- elements: text is only ever set as text, never as markup
  const SVG = "http://www.w3.org/2000/svg";
  function filled(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const html = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);
  const word = (number) => data.words[number];
  const fixed = (x, digits) => x.toFixed(digits).replace("-", "\u2212");
  const signed = (x, digits) => (x < 0 ? "" : "+") + fixed(x, digits);
  const pText = (p) => (p < 0.001 ? "< 0.001" : p.toFixed(3));

  // ---- geometry
  const W = 260, H = 164, LEFT = 34, RIGHT = 8, TOP = 14, BOTTOM = 36;
  const across = (x) => LEFT + x * (W - LEFT - RIGHT);
  const up = (share) => H - BOTTOM - share * (H - TOP - BOTTOM);
  const round = (x) => Math.round(x * 100) / 100;
  const path = (xs, ys) => xs.map((x, i) => (i ? "L" : "M") + round(x) + " " + round(ys[i])).join("");
  function axes(ticks, place, label, below) {
    const drawn = svg("g");
    drawn.append(svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${H - BOTTOM}H${W - RIGHT}` }));
    for (const [x, text] of [[0, "0"], [0.5, "½"], [1, "1"]]) {
      drawn.append(svg("text", { x: across(x), y: H - 18, "text-anchor": "middle" }, text));
    }
    drawn.append(svg("text", { x: across(0.5), y: H - 4, "text-anchor": "middle" }, below));
    for (const tick of ticks) {
      drawn.append(svg("text", { x: LEFT - 5, y: place(tick) + 4, "text-anchor": "end" }, label(tick)));
    }
    return drawn;
  }

  // ---- a chart is a slider: the arrow keys, or the pointer, move along it and a line below tells the numbers
  function chart(caption, label, count, draw, say) {
    const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true" });
    const cursor = svg("g");
    const frame = html("div", {
      class: "chart", role: "slider", tabindex: "0", "aria-label": label,
      "aria-valuemin": "1", "aria-valuemax": String(count), "aria-valuenow": "1", "aria-valuetext": say(0),
    }, drawing);
    const readout = html("p", { class: "readout" }, caption);
    const mark = draw(drawing);
    drawing.append(cursor);
    let place = -1;
    function move(to) {
      place = Math.max(0, Math.min(count - 1, to));
      cursor.replaceChildren(...mark(place));
      readout.textContent = say(place);
      frame.setAttribute("aria-valuenow", String(place + 1));
      frame.setAttribute("aria-valuetext", say(place));
    }
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5 };
    frame.addEventListener("keydown", (event) => {
      if (event.key in steps) move(place < 0 ? 0 : place + steps[event.key]);
      else if (event.key === "Home") move(0);
      else if (event.key === "End") move(count - 1);
      else return;
      event.preventDefault();
    });
    const point = (event) => {
      const box = drawing.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width * W - LEFT) / (W - LEFT - RIGHT);
      move(Math.floor(x * count));
    };
    frame.addEventListener("pointermove", point);
    frame.addEventListener("pointerdown", point);
    const leave = () => {
      if (document.activeElement === frame && frame.matches(":focus-visible")) return;
      cursor.replaceChildren();
      readout.textContent = caption;
    };
    frame.addEventListener("pointerleave", leave);
    frame.addEventListener("blur", () => setTimeout(leave));
    frame.addEventListener("focus", () => { if (frame.matches(":focus-visible")) move(Math.max(place, 0)); });
    return html("div", {}, readout, frame);
  }

  function histogram(panel, projection, name) {
    const heights = projection.h.map((x) => x / 100), bins = heights.length;
    const [low, high] = panel.b.map((x) => x / 1000);
    const place = (height) => up(Math.min(height, data.top) / data.top);
    const ticks = Array.from({ length: Math.floor(data.top) + 1 }, (_, k) => k);
    const draw = (drawing) => {
      const width = across(1) - across(0);
      drawing.append(svg("rect", { class: "band", x: LEFT, width, y: place(high), height: place(low) - place(high) }));
      heights.forEach((height, k) => {
        const y = place(height);
        drawing.append(svg("rect", { class: "mass", x: across(k / bins), width: width / bins, y: round(y), height: round(H - BOTTOM - y) }));
        if (height > data.top) {
          drawing.append(svg("text", { class: "cut", x: across((k + 0.5) / bins), y: TOP - 2, "text-anchor": "middle" }, fixed(height, 1)));
        }
      });
      for (const edge of [low, high]) if (edge <= data.top) drawing.append(svg("path", { class: "edge", d: `M${LEFT} ${round(place(edge))}H${W - RIGHT}` }));
      drawing.append(svg("path", { class: "uniform", d: `M${LEFT} ${round(place(1))}H${W - RIGHT}` }), axes(ticks, place, String, "place of the outcome"));
      return (k) => [svg("rect", { class: "cursor", x: across(k / bins), width: width / bins, y: round(place(heights[k])), height: round(H - BOTTOM - place(heights[k])) })];
    };
    const say = (k) => {
      const where = heights[k] > high ? "above it" : heights[k] < low ? "below it" : "inside it";
      const digits = bins === 10 ? 1 : 2, range = `${(k / bins).toFixed(digits)} to ${((k + 1) / bins).toFixed(digits)}`;
      return `${panel.u ? `Rank ${k + 1} of ${bins}` : range}: density ${fixed(heights[k], 2)}; band ${fixed(low, 2)} to ${fixed(high, 2)}, ${where}`;
    };
    return chart(panel.u ? `Rank histogram, a bar for each of ${bins} ranks` : "Rank histogram", `Rank histogram of ${name}`, bins, draw, say);
  }

  const widthsOf = (panel, projection) => (projection.w || panel.w).map((x) => x / 10000);

  function reliability(panel, projection, name, diagonal) {
    const deviation = projection.d.map((x) => x / 10000), half = widthsOf(panel, projection);
    const limit = data.limit, xs = levels.map(across);
    const place = diagonal ? (y) => up(Math.max(0, Math.min(1, y))) : (y) => up((y + limit) / (2 * limit));
    const base = diagonal ? levels : levels.map(() => 0);
    const line = (values) => path(xs, values.map((value, j) => place(base[j] + value)));
    const tick = limit > 0.6 ? 0.5 : limit > 0.25 ? 0.2 : limit > 0.12 ? 0.1 : limit > 0.06 ? 0.05 : limit > 0.025 ? 0.02 : 0.01;
    const count = Math.floor(limit / tick + 1e-9);
    const ticks = diagonal ? [0, 0.5, 1] : Array.from({ length: 2 * count + 1 }, (_, k) => (k - count) * tick);
    const digits = diagonal ? 1 : tick < 0.1 ? 2 : 1;
    const draw = (drawing) => {
      const back = levels.map((_, j) => j).reverse();
      const lower = back.map((j, i) => "L" + round(xs[j]) + " " + round(place(base[j] - half[j]))).join("");
      drawing.append(svg("path", { class: "band", d: line(half) + lower + "Z" }));
      drawing.append(svg("path", { class: "uniform", d: `M${across(0)} ${round(place(0))}L${across(1)} ${round(place(diagonal ? 1 : 0))}` }));
      for (const other of panel.q) {
        if (other !== projection) drawing.append(svg("path", { class: "other", d: line(other.d.map((x) => x / 10000)) }));
      }
      drawing.append(svg("path", { class: "curve", d: line(deviation) }), axes(ticks, place, (x) => fixed(x + 0, digits), "level"));
      return (j) => [
        svg("path", { class: "cursor", d: `M${round(xs[j])} ${TOP}V${H - BOTTOM}` }),
        svg("circle", { class: "cursor", cx: round(xs[j]), cy: round(place(base[j] + deviation[j])), r: 4 }),
      ];
    };
    const say = (j) => {
      const where = Math.abs(deviation[j]) > half[j] ? "outside" : "inside";
      return `Level ${levels[j].toFixed(3)}: share ${fixed(levels[j] + deviation[j], 3)}, ${signed(deviation[j], 3)}; band ±${half[j].toFixed(3)}, ${where}`;
    };
    return chart(diagonal ? "Reliability diagram" : "Observed share minus level", `Reliability diagram of ${name}`, levels.length, draw, say);
  }

  // ---- rows: every projection as cells, outside the band or inside
  function cells(panel, projection) {
    const bins = projection.h.length;
    const strip = svg("svg", { viewBox: `0 0 ${bins} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
    const [low, high] = panel.b.map((x) => x / 1000);
    projection.h.forEach((height, k) => {
      const departure = (height / 100 - 1) / Math.max(height > 100 ? high - 1 : 1 - low, 1e-9);
      const side = departure > 1 ? "above" : departure < -1 ? "below" : "inside";
      const weak = side !== "inside" && Math.abs(departure) < 2 ? " weak" : "";
      strip.append(svg("rect", { class: side + weak, x: k + 0.03, y: 0.05, width: 0.94, height: 0.9 }));
    });
    return strip;
  }

  let serial = 0;
  function card(panel) {
    const number = serial++, name = word(panel.n), several = panel.q.length > 1;
    let chosen = panel.s;
    const frame = html("article", { class: "card " + (panel.f ? "bad" : "good"), "aria-labelledby": "card" + number });
    const charts = html("div", { class: "charts" }), drawn = html("p", { class: "drawn" });
    const times = panel.x > 0 ? `, ${(panel.e / panel.x).toFixed(1)} × expected` : "";
    frame.append(
      html("header", {}, html("h3", { id: "card" + number }, name), html("span", {}, panel.f ? "▲ miscalibrated" : "● no evidence of it")),
      html("p", {}, panel.t === undefined ? "No evidence of an error." : word(panel.t)),
      html("p", { class: "numbers" }, `${word(panel.r)}. PCE ${panel.e.toFixed(4)}${times}${panel.i ? "; 95 % interval " + panel.i : ""}; adjusted p ${pText(panel.p)}`),
    );
    if (several) frame.append(drawn);
    frame.append(charts);
    function show() {
      const one = panel.q[chosen], label = several ? `${name}, ${word(one.n)}` : name;
      if (several) {
        const ratio = one.x > 0 ? `, ${(one.e / one.x).toFixed(1)} × expected` : "";
        drawn.textContent = `Shown: ${word(one.n)} (PCE ${one.e.toFixed(4)}${ratio}; adjusted p ${pText(one.p)}): ${word(one.r)}`;
      }
      charts.replaceChildren(histogram(panel, one, label), reliability(panel, one, label, byId("diagonal").checked));
    }
    if (several) {
      const rows = html("div", { class: "rows" });
      panel.q.forEach((one, k) => {
        const input = html("input", { type: "radio", name: "rows" + number, value: String(k) });
        input.checked = k === chosen;
        input.addEventListener("change", () => { chosen = k; show(); });
        rows.append(html("label", { class: "row", title: word(one.n) }, input, html("span", { class: "name" }, word(one.n)), cells(panel, one)));
      });
      const count = panel.q.length < panel.k ? `${panel.q.length} of ${panel.k} projections, those with the largest errors` : `All ${panel.k} projections`;
      frame.append(html("fieldset", {}, html("legend", {}, `${count}: densities of the rank histogram`), rows));
    }
    show();
    frame.redraw = show;
    return frame;
  }

  // ---- pictures of one group
  const group = byId("group");
  let cards = [];
  function showGroup() {
    const shown = data.groups[group ? Number(group.value) : 0];
    cards = shown ? shown.panels.map(card) : [];
    byId("cards").replaceChildren(...cards);
  }
  if (group) {
    data.groups.forEach((one, k) => group.append(html("option", { value: String(k) }, `${word(one.n)} (${one.size})`)));
    group.addEventListener("change", showGroup);
  }
  byId("diagonal").addEventListener("change", () => cards.forEach((one) => one.redraw()));

  // ---- the table of groups: find, order, show some at a time
  const body = byId("groups");
  if (body) {
    const AT_ONCE = 25;
    const rows = [...body.rows].map((row) => ({
      row, text: row.textContent.toLowerCase(), fails: row.classList.contains("bad"),
      p: Number(row.dataset.p), ratio: Number(row.dataset.ratio), place: Number(row.dataset.place),
    }));
    const orders = {
      p: (a, b) => a.p - b.p || b.ratio - a.ratio || a.place - b.place,
      ratio: (a, b) => b.ratio - a.ratio || a.place - b.place,
      place: (a, b) => a.place - b.place,
    };
    let most = AT_ONCE;
    function list() {
      const asked = byId("find").value.trim().toLowerCase(), failing = byId("failing").checked;
      rows.sort(orders[byId("order").value]);
      const found = rows.filter((one) => (!failing || one.fails) && one.text.includes(asked));
      const visible = new Set(found.slice(0, most));
      for (const one of rows) one.row.hidden = !visible.has(one);
      body.append(...rows.map((one) => one.row));
      byId("more").hidden = found.length <= most;
      byId("shown").textContent = `${visible.size} of ${found.length} groups`;
    }
    byId("find").addEventListener("input", () => { most = AT_ONCE; list(); });
    for (const id of ["order", "failing"]) byId(id).addEventListener("change", () => { most = AT_ONCE; list(); });
    byId("more").addEventListener("click", () => { most += 4 * AT_ONCE; list(); });
    body.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-group]");
      if (!button) return;
      group.value = button.dataset.group;
      showGroup();
      byId("pictures").scrollIntoView();
      group.focus({ preventScroll: true });
    });
    list();
  }

  // ---- light and dark
  const theme = byId("theme"), root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => { theme.textContent = dark() ? "Light colours" : "Dark colours"; };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  label();

  for (const element of document.querySelectorAll(".js")) element.hidden = false;
  if (byId("more")) byId("more").hidden = byId("more").hidden || [...body.rows].every((row) => !row.hidden);
  showGroup();
})();
