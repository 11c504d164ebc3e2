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
  const ALIGNING = data.heads === 1 ? 0 : MEAN;
  const SMALLEST = 0.04; // The smallest weight of a line between the sentences.
  const state = { sentence: 0, kind: "cross", layer: data.layer, head: ALIGNING, row: null, col: null };
  const darkScreen = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;

  // One hue, and lightness that only ever falls (in the dark: rises): readable without colour and in print.
  const LIGHT = [[255, 255, 255], [222, 235, 247], [158, 202, 225], [66, 146, 198], [8, 81, 156], [6, 32, 76]];
  const DARK = [[28, 33, 41], [27, 58, 97], [37, 96, 160], [86, 156, 224], [168, 211, 250], [255, 255, 255]];
  // The square root shows small weights, which are most of them; the same colour is the same weight everywhere.
  const shade = (weight) => Math.sqrt(Math.min(1, weight));

  function colour(weight) {
    const stops = darkScreen.matches && !printing ? DARK : LIGHT;
    const position = shade(weight) * (stops.length - 1);
    const low = Math.min(Math.floor(position), stops.length - 2);
    return stops[low].map((value, channel) => value + (position - low) * (stops[low + 1][channel] - value));
  }

  // One pixel for each weight.
  function paint(canvas, weights, width) {
    canvas.width = width;
    canvas.height = weights.length / width;
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    weights.forEach((weight, i) => image.data.set([...colour(weight), 255], 4 * i));
    context.putImageData(image, 0, 0);
    return canvas;
  }

  // ---- the weights ----

  const unpack = (text) => new Uint16Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const now = () => data.sentences[state.sentence];
  const rowTokens = (kind) => (kind === "encoder" ? now().src : now().tgt);
  function columnTokens(kind) {
    return kind === "decoder" ? [["<s>", "mark"], ...now().tgt.slice(0, -1)] : now().src;
  }

  // One head, or the mean of all: weights from 0 to 1, row by row.
  function matrix(kind, layer, head) {
    const map = now().maps[kind];
    const { heads } = map;
    map.unpacked ??= unpack(map.weights);
    const size = rowTokens(kind).length * columnTokens(kind).length;
    const [first, last] = head === MEAN ? [0, heads] : [head, head + 1];
    const weights = new Float32Array(size);
    for (let h = first; h < last; h++) {
      const start = (layer * heads + h) * size;
      for (let i = 0; i < size; i++) weights[i] += map.unpacked[start + i] / 65535 / (last - first);
    }
    return weights;
  }

  const picture = (kind, layer, head) =>
    paint(element("canvas"), matrix(kind, layer, head), columnTokens(kind).length);
  const percent = (weight) => weight.toFixed(weight >= 0.0995 ? 3 : 4);
  const headName = (head) => (head === MEAN ? "mean of the heads" : "head " + (head + 1));
  const viewName = (kind, layer, head) => `${KINDS[kind][0]}, layer ${layer + 1}, ${headName(head)}`;

  // ---- the page ----

  const lines = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  lines.setAttribute("aria-hidden", "true");
  const list = element("ol", { className: "list" });
  const source = element("div", { className: "tokens src", role: "group", ariaLabel: "source" });
  const target = element("div", { className: "tokens tgt", role: "group", ariaLabel: "translation" });
  const pair = element("div", { className: "pair" }, lines, source, target);
  const rule = element("p");
  const tabs = element("div", { className: "tabs", role: "tablist" });
  const title = element("h2");
  const readout = element("p", { className: "readout", role: "status" });
  const canvas = element("canvas", { tabIndex: 0, role: "img" });
  const scroll = element("div", { className: "scroll" }, canvas);
  const bar = element("canvas", { className: "bar" });
  const ticks = element("div", { className: "ticks" }, ...[0, 0.1, 0.25, 0.5, 1].map((weight) => {
    const tick = element("span", {}, String(weight));
    tick.style.left = 100 * shade(weight) + "%";
    return tick;
  }));
  const legend = element("div", { className: "legend" }, element("span", {}, "weight"), element("div", {}, bar, ticks));
  const large = element("div", { className: "large" }, title, readout, scroll, legend);
  const multiples = element("div", { className: "multiples" });
  const help = element("details", {}, element("summary", {}, "How to read this"), ...[
    "Each row is a token that attends, each column a token that is attended to. The weights of a row sum to 1.",
    "A row of the decoder is the token that is being predicted: what the model attends to in order to write it. " +
      "At that moment it has read the tokens before it, which are the columns of the decoder's self-attention.",
    "The lines between the sentences show the cross-attention of the heads that align words. The thick line of " +
      "each token goes to the source token with the largest weight; </s>, the end of a sentence, is left out there.",
    "Keys: Tab goes from part to part; in the large map the arrow keys move from cell to cell.",
    "Attention is where a layer takes information from. It is not proof of why a word was chosen.",
  ].map((text) => element("p", {}, text)));
  root.append(list, pair, rule, tabs, element("div", { className: "both" }, large, multiples), help);

  // ---- the two sentences ----

  function fillTokens(row, tokens) {
    row.replaceChildren(...tokens.map(([label, kind], index) => {
      const enter = () => focusToken(index, row === source);
      return element("span", {
        className: "token " + kind,
        tabIndex: index === 0 ? 0 : -1,
        title: kind === "unknown" ? label + ": not in the vocabulary, <unk> to the model" : label,
        onpointerenter: enter,
        onfocus: enter,
        onpointerleave: unfocus,
        onblur: unfocus,
      }, label);
    }));
  }

  function drawLines() {
    const weights = matrix("cross", data.layer, ALIGNING);
    const width = now().src.length;
    const links = now().tgt.slice(0, -1).flatMap((_, t) => {
      const row = [...weights.subarray(t * width, (t + 1) * width - 1)];
      const best = row.indexOf(Math.max(...row));
      return row.map((weight, s) => ({ weight, tokens: [s, t], isBest: s === best }));
    }).filter(({ weight, isBest }) => weight >= SMALLEST || isBest);
    pair.classList.remove("focused");
    lines.replaceChildren(...pathsBetween(pair, [source, target], links.map(({ tokens }) => tokens)));
    links.forEach(({ weight, tokens, isBest }, index) => {
      const path = Object.assign(lines.children[index], { tokens });
      path.setAttribute("stroke-width", isBest ? 3 : 1 + 2 * weight);
      path.style.opacity = isBest ? 0.45 + 0.55 * weight : 0.15 + 0.6 * weight;
    });
  }

  function focusToken(index, isSource) {
    const [own, other] = isSource ? [source, target] : [target, source];
    const [tokens, others] = isSource ? [now().src, now().tgt] : [now().tgt, now().src];
    const weights = matrix("cross", data.layer, ALIGNING);
    const width = now().src.length;
    const strongest = others
      .map(([label], i) => [isSource ? weights[i * width + index] : weights[index * width + i], label, i])
      .filter(([weight]) => weight >= SMALLEST).sort((a, b) => b[0] - a[0]).slice(0, 4);
    own.children[index].classList.add("is-row");
    for (const [, , i] of strongest) other.children[i].classList.add("is-col");
    pair.classList.add("focused");
    for (const path of lines.children) path.classList.toggle("lit", path.tokens[isSource ? 0 : 1] === index);
    const listed = strongest.map(([weight, label]) => `${label} ${percent(weight)}`).join(",  ");
    rule.textContent = tokens[index][0] + (isSource ? "  is attended to by  " : "  attends to  ") +
      (listed || `nothing above ${SMALLEST}`);
  }

  function unmark() {
    for (const token of pair.querySelectorAll(".token")) token.classList.remove("is-row", "is-col");
  }

  function unfocus() {
    pair.classList.remove("focused");
    unmark();
    rule.textContent = ruleText();
  }

  function ruleText() {
    const { heads } = now().maps.cross;
    const which = heads === 1 ? "" : data.heads === 1 ? ", its first head" : `, averaged over its ${heads} heads`;
    return `Lines: cross-attention of decoder layer ${data.layer + 1}${which}.`;
  }

  // ---- the large map ----

  let frame = null;
  function drawLarge() {
    const { kind, layer, head } = state;
    title.textContent = viewName(kind, layer, head);
    const [rows, columns] = [rowTokens(kind), columnTokens(kind)];
    const context = canvas.getContext("2d");
    const style = getComputedStyle(root);
    const font = (bold) => `${bold ? "600 " : ""}13px ${style.fontFamily}`;
    context.font = font(true);
    const cut = ([label]) => (label.length > 16 ? label.slice(0, 15) + "…" : label);
    const widthOf = (token) => context.measureText(cut(token)).width;
    const slant = Math.PI / 3;
    const left = Math.ceil(Math.max(...rows.map(widthOf))) + 10;
    const top = Math.ceil(Math.max(...columns.map(widthOf)) * Math.sin(slant)) + 14;
    const right = Math.ceil(widthOf(columns[columns.length - 1]) * Math.cos(slant)) + 8;
    const room = scroll.clientWidth - left - right;
    const cell = Math.max(15, Math.min(30, Math.floor(room / columns.length)));
    const [width, height] = [left + cell * columns.length + right, top + cell * rows.length + 2];
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture(kind, layer, head), left, top, cell * columns.length, cell * rows.length);
    context.strokeStyle = style.getPropertyValue("--edge");
    context.strokeRect(left - 0.5, top - 0.5, cell * columns.length + 1, cell * rows.length + 1);
    const write = (token, lit, colour, x, y) => {
      context.font = font(lit);
      context.fillStyle = style.getPropertyValue(lit ? colour : token[1] === "mark" ? "--soft" : "--ink");
      context.fillText(cut(token), x, y);
    };
    context.textBaseline = "middle";
    context.textAlign = "right";
    rows.forEach((token, row) => write(token, row === state.row, "--row", left - 6, top + cell * (row + 0.5)));
    context.textAlign = "left";
    columns.forEach((token, col) => {
      context.save();
      context.translate(left + cell * (col + 0.5), top - 6);
      context.rotate(-slant);
      write(token, col === state.col, "--col", 0, 0);
      context.restore();
    });
    if (state.row !== null) {
      context.lineWidth = 2;
      context.strokeStyle = style.getPropertyValue("--row");
      context.strokeRect(left + cell * state.col + 1, top + cell * state.row + 1, cell - 2, cell - 2);
      canvas.dataset.cell = `${left + cell * (state.col + 0.5)} ${top + cell * (state.row + 0.5)}`;
    }
    frame = { left, top, cell, rows: rows.length, columns: columns.length };
    canvas.ariaLabel = title.textContent + ". The arrow keys move from cell to cell.";
    for (const button of multiples.querySelectorAll("button")) {
      button.ariaPressed = button.view[0] === layer && button.view[1] === head;
    }
    say();
  }

  function say() {
    const { kind, layer, head, row, col } = state;
    unmark();
    if (row === null) {
      readout.textContent = `Row: ${KINDS[kind][1]}. Columns: ${KINDS[kind][2]}. Point at a cell for its weight.`;
      return;
    }
    const columns = columnTokens(kind);
    const weight = percent(matrix(kind, layer, head)[row * columns.length + col]);
    const labels = [rowTokens(kind)[row][0], " attends to ", columns[col][0], ": "];
    readout.replaceChildren(...labels, element("b", { className: "weight" }, weight));
    (kind === "encoder" ? source : target).children[row].classList.add("is-row");
    // The columns of the decoder's self-attention begin with <s>, which is no token of the translation.
    const shown = kind === "decoder" ? target.children[col - 1] : source.children[col];
    if (shown) shown.classList.add("is-col");
  }

  function point(row, col) {
    if (row === state.row && col === state.col) return;
    Object.assign(state, { row, col });
    drawLarge();
  }

  canvas.onpointermove = (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - frame.top) / frame.cell);
    const col = Math.floor((event.clientX - box.left - frame.left) / frame.cell);
    const inside = row >= 0 && row < frame.rows && col >= 0 && col < frame.columns;
    point(inside ? row : null, inside ? col : null);
  };
  canvas.onpointerleave = (event) => {
    if (event.pointerType === "mouse") point(null, null);
  };
  canvas.onblur = () => point(null, null);
  canvas.onkeydown = (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const clamp = (value, count) => Math.max(0, Math.min(count - 1, value));
    if (state.row === null) point(0, 0);
    else point(clamp(state.row + move[0], frame.rows), clamp(state.col + move[1], frame.columns));
  };

  // ---- small multiples, tabs and list ----

  function drawMultiples() {
    const { kind } = state;
    const { layers, heads } = now().maps[kind];
    multiples.replaceChildren();
    for (let layer = layers - 1; layer >= 0; layer--) {
      const isAligning = kind === "cross" && layer === data.layer;
      const grid = element("div", { className: "heads" });
      for (let head = heads === 1 ? 0 : MEAN; head < heads; head++) {
        const show = () => {
          Object.assign(state, { layer, head, row: null, col: null });
          drawLarge();
          const above = large.getBoundingClientRect();
          if (above.top < 0 || above.bottom > window.innerHeight + above.height / 2) {
            large.scrollIntoView({ block: "start" });
          }
        };
        const properties = { type: "button", ariaLabel: viewName(kind, layer, head), onclick: show, view: [layer, head] };
        const name = head === MEAN ? "mean" : headName(head);
        grid.append(element("button", properties, picture(kind, layer, head), name));
      }
      multiples.append(element("h3", {}, `Layer ${layer + 1}` + (isAligning ? ", the lines above" : "")), grid);
    }
  }

  function select(changes) {
    Object.assign(state, { row: null, col: null }, changes);
    const { layers, heads } = now().maps[state.kind];
    if ("kind" in changes) state.layer = state.kind === "cross" ? data.layer : layers - 1;
    if (heads === 1) state.head = 0;
    Object.keys(KINDS).forEach((kind, index) => {
      const isShown = kind === state.kind;
      Object.assign(tabs.children[index], { ariaSelected: isShown, tabIndex: isShown ? 0 : -1 });
    });
    list.querySelectorAll("button").forEach((button, index) => { button.ariaCurrent = index === state.sentence; });
    if ("sentence" in changes) {
      fillTokens(source, now().src);
      fillTokens(target, now().tgt);
      rule.textContent = ruleText();
    }
    drawAll();
  }

  function drawAll() {
    drawLines();
    paint(bar, Array.from({ length: 256 }, (_, i) => (i / 255) ** 2), 256);
    drawMultiples();
    drawLarge();
  }

  for (const kind of Object.keys(KINDS)) {
    const show = () => select({ kind, head: MEAN });
    tabs.append(element("button", { type: "button", role: "tab", onclick: show }, KINDS[kind][0]));
  }
  for (const row of [source, target, tabs]) moveByArrows(row);
  list.hidden = data.sentences.length < 2;
  list.append(...data.sentences.map((sentence, index) => {
    const translation = element("span", { className: "target" }, sentence.target);
    const properties = { type: "button", onclick: () => select({ sentence: index }) };
    return element("li", {}, element("button", properties, `${sentence.line}. ${sentence.source}`, translation));
  }));

  select({ sentence: 0 });
  new ResizeObserver(() => { drawLines(); drawLarge(); }).observe(root);
  darkScreen.onchange = drawAll;
  window.addEventListener("beforeprint", () => { printing = true; drawAll(); });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); });
})(document.currentScript.parentElement);
