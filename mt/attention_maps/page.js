// Draws the attention maps of the section that contains this script. Text is only ever set as text, never as markup.
(function (root) {
  "use strict";
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const KINDS = {
    cross: ["Cross-attention", "the token that is predicted", "the source"],
    encoder: ["Encoder self-attention", "a source token", "the source"],
    decoder: ["Decoder self-attention", "the token that is predicted", "the tokens written before it"],
  };
  const MEAN = -1;
  const state = { sentence: 0, kind: "cross", layer: data.layer, head: MEAN, row: null, col: null };
  const darkScreen = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;

  // One hue, and lightness that only ever falls (in the dark: rises): readable without colour and in print.
  const LIGHT = [[255, 255, 255], [222, 235, 247], [158, 202, 225], [66, 146, 198], [8, 81, 156], [6, 32, 76]];
  const DARK = [[28, 33, 41], [27, 58, 97], [37, 96, 160], [86, 156, 224], [168, 211, 250], [255, 255, 255]];
  // The square root shows small weights, which are most of them; the same colour is the same weight everywhere.
  const shade = (weight) => Math.sqrt(Math.min(1, weight));

  function colours() {
    const stops = darkScreen.matches && !printing ? DARK : LIGHT;
    const table = new Uint8ClampedArray(256 * 3);
    for (let i = 0; i < 256; i++) {
      const place = (i / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      for (let c = 0; c < 3; c++) {
        table[3 * i + c] = stops[low][c] + (place - low) * (stops[low + 1][c] - stops[low][c]);
      }
    }
    return table;
  }

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // ---- the weights ----

  const unpacked = new Map();
  function weightsOf(sentence, kind) {
    const key = sentence + kind;
    if (!unpacked.has(key)) {
      const bytes = Uint8Array.from(atob(data.sentences[sentence].maps[kind].weights), (c) => c.charCodeAt(0));
      unpacked.set(key, new Uint16Array(bytes.buffer));
    }
    return unpacked.get(key);
  }

  const now = () => data.sentences[state.sentence];
  const rowTokens = (kind) => (kind === "encoder" ? now().src : now().tgt);
  function columnTokens(kind) {
    return kind === "decoder" ? [[now().bos, "mark"], ...now().tgt.slice(0, -1)] : now().src;
  }

  // One head, or the mean of all: weights from 0 to 1, row by row.
  function matrix(kind, layer, head) {
    const { heads } = now().maps[kind];
    const all = weightsOf(state.sentence, kind);
    const size = rowTokens(kind).length * columnTokens(kind).length;
    const found = new Float32Array(size);
    const first = head === MEAN ? 0 : head;
    const last = head === MEAN ? heads : head + 1;
    for (let h = first; h < last; h++) {
      const start = (layer * heads + h) * size;
      for (let i = 0; i < size; i++) found[i] += all[start + i] / 65535 / (last - first);
    }
    return found;
  }

  const percent = (weight) => weight.toFixed(weight >= 0.0995 ? 3 : 4);
  const headName = (head) => (head === MEAN ? "mean of the heads" : "head " + (head + 1));
  const viewName = (kind, layer, head) => `${KINDS[kind][0]}, layer ${layer + 1}, ${headName(head)}`;

  function paint(canvas, kind, layer, head) {
    const width = columnTokens(kind).length;
    const height = rowTokens(kind).length;
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const table = colours();
    matrix(kind, layer, head).forEach((weight, i) => {
      const colour = 3 * Math.round(255 * shade(weight));
      image.data.set([table[colour], table[colour + 1], table[colour + 2], 255], 4 * i);
    });
    context.putImageData(image, 0, 0);
  }

  // ---- the page ----

  const parts = {
    list: element("ol", "list"),
    pair: element("div", "pair"),
    source: element("div", "tokens src"),
    target: element("div", "tokens tgt"),
    rule: element("p"),
    tabs: element("div", "tabs"),
    large: element("div", "large"),
    title: element("h2"),
    readout: element("p", "readout"),
    scroll: element("div", "scroll"),
    canvas: element("canvas"),
    multiples: element("div", "multiples"),
  };
  const lines = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  lines.setAttribute("aria-hidden", "true");
  parts.source.setAttribute("aria-label", "source");
  parts.target.setAttribute("aria-label", "translation");
  for (const row of [parts.source, parts.target]) row.setAttribute("role", "group");
  parts.pair.append(lines, parts.source, parts.target);
  parts.readout.setAttribute("role", "status");
  parts.canvas.tabIndex = 0;
  parts.canvas.setAttribute("role", "img");
  parts.tabs.setAttribute("role", "tablist");
  parts.scroll.append(parts.canvas);
  parts.large.append(parts.title, parts.readout, parts.scroll, legend());
  const both = element("div", "both");
  both.append(parts.large, parts.multiples);
  root.append(parts.list, parts.pair, parts.rule, parts.tabs, both, help());

  function legend() {
    const made = element("div", "legend");
    const scale = element("div");
    const bar = element("canvas");
    bar.className = "bar";
    const ticks = element("div", "ticks");
    for (const weight of [0, 0.1, 0.25, 0.5, 1]) {
      const tick = element("span", "", String(weight));
      tick.style.left = 100 * shade(weight) + "%";
      ticks.append(tick);
    }
    scale.append(bar, ticks);
    made.append(element("span", "", "weight"), scale);
    return made;
  }

  function paintLegend() {
    const bar = parts.large.querySelector(".bar");
    bar.width = 256;
    bar.height = 1;
    const image = bar.getContext("2d").createImageData(256, 1);
    const table = colours();
    for (let i = 0; i < 256; i++) image.data.set([table[3 * i], table[3 * i + 1], table[3 * i + 2], 255], 4 * i);
    bar.getContext("2d").putImageData(image, 0, 0);
  }

  function help() {
    const made = element("details");
    made.append(element("summary", "", "How to read this"));
    for (const text of [
      "Each row is a token that attends, each column a token that is attended to. The weights of a row sum to 1.",
      "A row of the decoder is the token that is being predicted: what the model attends to in order to write it. " +
        "At that moment it has read the tokens before it, which are the columns of the decoder's self-attention.",
      "The lines between the sentences show one layer's cross-attention, averaged over its heads. The thick line of " +
        "each token goes to the source token with the largest weight; </s>, the end of a sentence, is left out there.",
      "Keys: Tab goes from part to part; in the large map the arrow keys move from cell to cell.",
      "Attention is where a layer takes information from. It is not proof of why a word was chosen.",
    ]) {
      made.append(element("p", "", text));
    }
    return made;
  }

  // ---- the two sentences ----

  function fillTokens(container, tokens, isSource) {
    container.replaceChildren();
    tokens.forEach(([label, kind], place) => {
      const token = element("span", "token " + kind, label);
      token.tabIndex = place === 0 ? 0 : -1;
      token.title = kind === "unknown" ? label + ": not in the vocabulary, <unk> to the model" : label;
      token.addEventListener("pointerenter", () => focusToken(place, isSource));
      token.addEventListener("focus", () => focusToken(place, isSource));
      token.addEventListener("pointerleave", unfocus);
      token.addEventListener("blur", unfocus);
      container.append(token);
    });
  }

  // The arrow keys move along a row of things of which only one is reached by Tab.
  function roving(container, selector) {
    container.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const all = [...container.querySelectorAll(selector)];
      const place = all.indexOf(document.activeElement);
      if (!step || place < 0) return;
      event.preventDefault();
      const next = all[Math.max(0, Math.min(all.length - 1, place + step))];
      all.forEach((each) => { each.tabIndex = each === next ? 0 : -1; });
      next.focus();
    });
  }

  function drawLines() {
    parts.pair.className = "pair wide";
    const fits = [parts.source, parts.target].every((row) => row.scrollWidth <= row.clientWidth + 1);
    if (!fits) parts.pair.className = "pair tall";
    const wide = fits;
    const box = parts.pair.getBoundingClientRect();
    const anchor = (token, isSource) => {
      const at = token.getBoundingClientRect();
      return wide
        ? [at.left + at.width / 2 - box.left, (isSource ? at.bottom + 2 : at.top - 2) - box.top]
        : [(isSource ? at.right + 2 : at.left - 2) - box.left, at.top + at.height / 2 - box.top];
    };
    lines.replaceChildren();
    const weights = matrix("cross", data.layer, MEAN);
    const width = now().src.length;
    for (let t = 0; t < now().tgt.length - 1; t++) {
      const row = weights.subarray(t * width, (t + 1) * width - 1);
      const best = row.indexOf(Math.max(...row));
      row.forEach((weight, s) => {
        if (weight < 0.04 && s !== best) return;
        const [x1, y1] = anchor(parts.source.children[s], true);
        const [x2, y2] = anchor(parts.target.children[t], false);
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        const middle = wide ? (y1 + y2) / 2 : (x1 + x2) / 2;
        const bend = wide ? `${x1} ${middle} ${x2} ${middle}` : `${middle} ${y1} ${middle} ${y2}`;
        path.setAttribute("d", `M${x1} ${y1}C${bend} ${x2} ${y2}`);
        path.setAttribute("stroke-width", s === best ? 3 : 1 + 2 * weight);
        path.style.opacity = s === best ? 0.45 + 0.55 * weight : 0.15 + 0.6 * weight;
        path.dataset.src = s;
        path.dataset.tgt = t;
        lines.append(path);
      });
    }
  }

  function focusToken(place, isSource) {
    const own = isSource ? parts.source : parts.target;
    own.children[place].classList.add("is-row");
    const weights = matrix("cross", data.layer, MEAN);
    const width = now().src.length;
    const others = (isSource ? now().tgt : now().src).map(([label], other) => {
      return [isSource ? weights[other * width + place] : weights[place * width + other], label, other];
    });
    const strongest = others.filter(([weight]) => weight >= 0.04).sort((a, b) => b[0] - a[0]).slice(0, 4);
    for (const [, , other] of strongest) (isSource ? parts.target : parts.source).children[other].classList.add("is-col");
    parts.pair.classList.add("focused");
    for (const path of lines.children) {
      path.classList.toggle("lit", path.dataset[isSource ? "src" : "tgt"] === String(place));
    }
    const listed = strongest.map(([weight, label]) => `${label} ${percent(weight)}`).join(",  ") || "nothing above 0.04";
    parts.rule.textContent =
      (isSource ? now().src : now().tgt)[place][0] + (isSource ? "  is attended to by  " : "  attends to  ") + listed;
  }

  function unfocus() {
    parts.pair.classList.remove("focused");
    for (const token of parts.pair.querySelectorAll(".token")) token.classList.remove("is-row", "is-col");
    parts.rule.textContent = ruleText();
  }

  function ruleText() {
    const { heads, layers } = now().maps.cross;
    const mean = heads === 1 ? "" : `, averaged over its ${heads} heads`;
    const measured = data.agreement === null || layers === 1 ? "" :
      ` Of the ${layers} layers it agrees most often (for ${Math.round(100 * data.agreement)} % of the tokens) with the ` +
      "source token that the prediction depends on most.";
    return `Lines: cross-attention of decoder layer ${data.layer + 1}${mean}.${measured}`;
  }

  // ---- the large map ----

  let frame = null;
  function drawLarge() {
    const { kind, layer, head } = state;
    parts.title.textContent = viewName(kind, layer, head);
    const [rows, columns] = [rowTokens(kind), columnTokens(kind)];
    const context = parts.canvas.getContext("2d");
    const style = getComputedStyle(root);
    const font = (bold) => `${bold ? "600 " : ""}13px ${style.fontFamily}`;
    context.font = font(true);
    const cut = ([label]) => (label.length > 16 ? label.slice(0, 15) + "…" : label);
    const widest = (tokens) => Math.max(...tokens.map((token) => context.measureText(cut(token)).width));
    const left = Math.ceil(widest(rows)) + 10;
    const slant = Math.PI / 3;
    const columnWidth = widest(columns);
    const top = Math.ceil(columnWidth * Math.sin(slant)) + 14;
    const lastWidth = context.measureText(cut(columns[columns.length - 1])).width;
    const right = Math.ceil(Math.max(lastWidth * Math.cos(slant), 0)) + 8;
    const room = parts.scroll.clientWidth - left - right;
    const cell = Math.max(15, Math.min(30, Math.floor(room / columns.length)));
    const [width, height] = [left + cell * columns.length + right, top + cell * rows.length + 2];
    const ratio = window.devicePixelRatio || 1;
    parts.canvas.width = Math.round(width * ratio);
    parts.canvas.height = Math.round(height * ratio);
    parts.canvas.style.width = width + "px";
    parts.canvas.style.height = height + "px";
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const small = document.createElement("canvas");
    paint(small, kind, layer, head);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, left, top, cell * columns.length, cell * rows.length);
    context.strokeStyle = style.getPropertyValue("--edge");
    context.strokeRect(left - 0.5, top - 0.5, cell * columns.length + 1, cell * rows.length + 1);
    const ink = (token, lit, colour) => {
      context.font = font(lit);
      context.fillStyle = style.getPropertyValue(lit ? colour : token[1] === "mark" ? "--soft" : "--ink");
    };
    context.textBaseline = "middle";
    rows.forEach((token, place) => {
      ink(token, place === state.row, "--row");
      context.textAlign = "right";
      context.fillText(cut(token), left - 6, top + cell * (place + 0.5));
    });
    columns.forEach((token, place) => {
      ink(token, place === state.col, "--col");
      context.save();
      context.translate(left + cell * (place + 0.5), top - 6);
      context.rotate(-slant);
      context.textAlign = "left";
      context.fillText(cut(token), 0, 0);
      context.restore();
    });
    if (state.row !== null) {
      context.lineWidth = 2;
      context.strokeStyle = style.getPropertyValue("--row");
      context.strokeRect(left + cell * state.col + 1, top + cell * state.row + 1, cell - 2, cell - 2);
      parts.canvas.dataset.cell = `${left + cell * (state.col + 0.5)} ${top + cell * (state.row + 0.5)}`;
      context.lineWidth = 1;
    }
    frame = { left, top, cell, rows: rows.length, columns: columns.length };
    parts.canvas.setAttribute("aria-label", parts.title.textContent + ". The arrow keys move from cell to cell.");
  }

  function say() {
    const { kind, layer, head, row, col } = state;
    parts.readout.replaceChildren();
    for (const token of parts.pair.querySelectorAll(".token")) token.classList.remove("is-row", "is-col");
    if (row === null) {
      parts.readout.textContent = `Row: ${KINDS[kind][1]}. Columns: ${KINDS[kind][2]}. Point at a cell for its weight.`;
      return;
    }
    const [rows, columns] = [rowTokens(kind), columnTokens(kind)];
    const weight = matrix(kind, layer, head)[row * columns.length + col];
    parts.readout.append(rows[row][0], " attends to ", columns[col][0], ": ", element("b", "weight", percent(weight)));
    (kind === "encoder" ? parts.source : parts.target).children[row].classList.add("is-row");
    // The columns of the decoder's self-attention begin with <s>, which is no token of the translation.
    const shown = kind === "decoder" ? parts.target.children[col - 1] : parts.source.children[col];
    if (shown) shown.classList.add("is-col");
  }

  function point(row, col) {
    if (row === state.row && col === state.col) return;
    [state.row, state.col] = [row, col];
    drawLarge();
    say();
  }

  parts.canvas.addEventListener("pointermove", (event) => {
    const box = parts.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - frame.top) / frame.cell);
    const col = Math.floor((event.clientX - box.left - frame.left) / frame.cell);
    const inside = row >= 0 && row < frame.rows && col >= 0 && col < frame.columns;
    point(inside ? row : null, inside ? col : null);
  });
  parts.canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") point(null, null);
  });
  parts.canvas.addEventListener("blur", () => point(null, null));
  parts.canvas.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const clamp = (value, count) => Math.max(0, Math.min(count - 1, value));
    if (state.row === null) point(0, 0);
    else point(clamp(state.row + move[0], frame.rows), clamp(state.col + move[1], frame.columns));
  });

  // ---- small multiples, tabs and list ----

  function drawMultiples() {
    const { kind } = state;
    const { layers, heads } = now().maps[kind];
    parts.multiples.replaceChildren();
    for (let layer = layers - 1; layer >= 0; layer--) {
      const isAligning = kind === "cross" && layer === data.layer;
      parts.multiples.append(element("h3", "", `Layer ${layer + 1}` + (isAligning ? ", the lines above" : "")));
      const grid = element("div", "heads");
      for (let head = MEAN; head < heads; head++) {
        if (head === MEAN && heads === 1) continue;
        const button = element("button");
        const canvas = element("canvas");
        paint(canvas, kind, layer, head);
        button.append(canvas, head === MEAN ? "mean" : "head " + (head + 1));
        button.type = "button";
        button.setAttribute("aria-label", viewName(kind, layer, head));
        button.dataset.layer = layer;
        button.dataset.head = head;
        button.addEventListener("click", () => {
          Object.assign(state, { layer, head, row: null, col: null });
          drawLarge();
          say();
          press();
          const above = parts.large.getBoundingClientRect();
          if (above.top < 0 || above.bottom > window.innerHeight + above.height / 2) {
            parts.large.scrollIntoView({ block: "start" });
          }
        });
        grid.append(button);
      }
      parts.multiples.append(grid);
    }
    press();
  }

  function press() {
    for (const button of parts.multiples.querySelectorAll("button")) {
      const isShown = +button.dataset.layer === state.layer && +button.dataset.head === state.head;
      button.setAttribute("aria-pressed", String(isShown));
    }
  }

  function select(changes) {
    Object.assign(state, { row: null, col: null }, changes);
    const { layers, heads } = now().maps[state.kind];
    if ("kind" in changes) state.layer = state.kind === "cross" ? data.layer : layers - 1;
    if (heads === 1) state.head = 0;
    for (const tab of parts.tabs.children) {
      tab.setAttribute("aria-selected", String(tab.dataset.kind === state.kind));
      tab.tabIndex = tab.dataset.kind === state.kind ? 0 : -1;
    }
    [...parts.list.querySelectorAll("button")].forEach((button, place) => {
      button.setAttribute("aria-current", String(place === state.sentence));
    });
    if ("sentence" in changes) {
      fillTokens(parts.source, now().src, true);
      fillTokens(parts.target, now().tgt, false);
      parts.rule.textContent = ruleText();
    }
    drawAll();
  }

  function drawAll() {
    drawLines();
    paintLegend();
    drawLarge();
    say();
    drawMultiples();
  }

  for (const kind of Object.keys(KINDS)) {
    const tab = element("button", "", KINDS[kind][0]);
    tab.type = "button";
    tab.dataset.kind = kind;
    tab.setAttribute("role", "tab");
    tab.addEventListener("click", () => select({ kind, head: MEAN }));
    parts.tabs.append(tab);
  }
  for (const row of [parts.source, parts.target]) roving(row, ".token");
  roving(parts.tabs, "button");
  data.sentences.forEach((sentence, place) => {
    const item = element("li");
    const button = element("button", "", `${sentence.line}. ${sentence.source}`);
    button.type = "button";
    button.append(element("span", "target", sentence.target));
    button.addEventListener("click", () => select({ sentence: place }));
    item.append(button);
    parts.list.append(item);
  });
  if (data.sentences.length < 2) parts.list.hidden = true;

  select({ sentence: 0 });
  new ResizeObserver(() => { drawLines(); drawLarge(); }).observe(root);
  darkScreen.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => { printing = true; drawAll(); });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); });
})(document.currentScript.parentElement);
