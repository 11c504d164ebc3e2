// Translates while somebody types. All text is set as text, never as markup.
(function () {
  "use strict";
  const PAUSE = 250; // Milliseconds without a key before the service is asked.
  const ALTERNATIVES = 5;
  const SIDES = ["source", "target"];
  const part = (id) => document.getElementById(id);
  let choices = []; // Each direction of each run.
  let shown = null; // The result of the newest answer, and which of its translations is chosen.
  let chosen = 0;
  let timer = 0;
  let isAsking = false;
  let hasTyped = false; // Until then, there is an example.
  let isStale = false; // Whether something has changed since the service was asked.

  function say(text, isBad) {
    Object.assign(part("status"), { textContent: text, className: isBad ? "bad" : "" });
  }

  // ---- asking ----

  function changed() {
    isStale = true;
    part("translation").className = "old";
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  }

  async function ask() {
    clearTimeout(timer);
    // One request at a time; the newest text is asked for when its answer is there.
    if (isAsking) return;
    isAsking = true;
    isStale = false;
    const text = part("text").value;
    try {
      if (text.trim()) await translate(text);
      else { show(null); say(""); }
    } catch (error) {
      say("The service does not answer.", true);
    }
    isAsking = false;
    if (isStale) ask();
  }

  async function translate(text) {
    const { run, src, tgt } = choices[part("run").selectedIndex];
    const answer = await post({ text, run, src, tgt, alignment: true, beam: ALTERNATIVES, n_best: ALTERNATIVES });
    const said = await answer.json();
    if (answer.ok) {
      say("");
      show(said.results[0]);
    } else if (answer.status === 401) {
      part("key").hidden = false;
      say("This service needs its token.", true);
    } else {
      say(said.error, true);
      // It is busy.
      const seconds = answer.headers.get("Retry-After");
      if (seconds) timer = setTimeout(ask, 1000 * Number(seconds));
    }
  }

  function post(body) {
    const headers = { "Content-Type": "application/json" };
    const token = part("token").value;
    if (token) headers.Authorization = "Bearer " + token;
    return fetch("translate", { method: "POST", headers, body: JSON.stringify(body) });
  }

  // ---- showing ----

  function show(result) {
    shown = result;
    part("translation").className = "";
    const translations = result ? result.translations : [];
    part("others").hidden = translations.length < 2;
    part("alternatives").replaceChildren(...translations.map((translation, index) => {
      const words = element("span", { dir: "auto" }, translation.text);
      const score = element("span", { className: "score" }, translation.score.toFixed(2));
      return element("li", {}, element("button", { type: "button", onclick: () => choose(index) }, words, score));
    }));
    choose(0);
  }

  function choose(index) {
    chosen = index;
    const translation = shown ? shown.translations[chosen] : { text: "", copied: [] };
    part("translation").replaceChildren(...underlined(translation.text, translation.copied));
    if (translation.alignment === null) say("No word alignment: the text was translated in parts.");
    part("alternatives").querySelectorAll("button").forEach((button, i) => { button.ariaPressed = i === chosen; });
    part("words").hidden = !(translation.alignment && translation.alignment.length);
    if (part("words").hidden) return;
    fill("source", shown.source, 0, translation.unknown);
    fill("target", translation.text, 1, translation.copied);
    part("links").textContent = "";
    drawLines();
  }

  // A text as nodes, in which these words, which the model does not know, are underlined.
  function underlined(text, words) {
    const escaped = words.map((word) => word.replace(/[^\p{L}\p{M}\p{N}\s]/gu, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`));
    const pattern = `(?<![\\p{L}\\p{N}])(${escaped.join("|") || "(?!)"})(?![\\p{L}\\p{N}])`;
    return text.split(new RegExp(pattern, "u")).map((part, i) => i % 2 ? element("u", {}, part) : part);
  }

  function fill(id, text, side, unknown) {
    part(id).replaceChildren(...text.split(/\s/).filter(Boolean).map((word, index) => {
      const enter = () => point(side, index);
      const handlers = { onpointerenter: enter, onfocus: enter, onpointerleave: unpoint, onblur: unpoint };
      const tabIndex = index === 0 ? 0 : -1;
      return element("span", { className: "word", role: "listitem", tabIndex, ...handlers }, ...underlined(word, unknown));
    }));
  }

  function drawLines() {
    part("pair").classList.remove("pointing");
    part("lines").replaceChildren(...pathsBetween(part("pair"), SIDES.map(part), alignment()));
  }

  function alignment() {
    const [sources, targets] = SIDES.map((id) => part(id).children.length);
    return shown.translations[chosen].alignment.filter(([s, t]) => s < sources && t < targets);
  }

  function point(side, index) {
    unpoint();
    part("pair").classList.add("pointing");
    const own = part(SIDES[side]).children[index];
    own.classList.add("lit");
    const others = [];
    alignment().forEach((link, number) => {
      if (link[side] !== index) return;
      part("lines").children[number].classList.add("lit");
      const other = part(SIDES[1 - side]).children[link[1 - side]];
      other.classList.add("lit");
      others.push(other.textContent);
    });
    part("links").textContent = own.textContent + " – " + (others.join(" ") || "no word");
  }

  function unpoint() {
    part("pair").classList.remove("pointing");
    for (const lit of part("pair").querySelectorAll(".lit")) lit.classList.remove("lit");
  }

  function nameLanguages() {
    const run = choices[part("run").selectedIndex];
    const languages = [run.src, run.tgt].map(languageName);
    part("src").textContent = languages[0];
    part("tgt").textContent = languages[1];
    part("model").textContent = `${languages.join(" → ")}, by ${run.run}` + (run.checkpoint && `, ${run.checkpoint}`);
    document.title = `Translate: ${languages.join(" → ")}`;
    const text = part("text");
    if (!hasTyped) {
      text.value = run.example;
      text.select();
    }
    changed();
  }

  // The languages of a run are often codes, but may be any names.
  function languageName(code) {
    try {
      return new Intl.DisplayNames("en", { type: "language" }).of(code);
    } catch (error) {
      return code;
    }
  }

  async function start() {
    try {
      const { runs } = await (await fetch("health")).json();
      // An example is in the first source language.
      choices = runs.flatMap((run) => run.directions.map(({ src, tgt }) => ({ ...run, src, tgt, example: src === run.src ? run.example : "" })));
    } catch (error) {
      say("The service does not answer. Load this page again when it does.", true);
      return;
    }
    const isPair = (run) => choices.filter((other) => other.src === run.src && other.tgt === run.tgt).length === 1;
    part("run").append(...choices.map((run) => {
      return element("option", {}, [run.src, run.tgt].map(languageName).join(" → ") + (isPair(run) ? "" : ` (${run.run})`));
    }));
    part("choice").hidden = choices.length < 2;
    part("run").onchange = nameLanguages;
    part("text").oninput = () => { hasTyped = true; changed(); };
    part("token").onchange = changed;
    SIDES.map(part).forEach(moveByArrows);
    // Drawing changes the height, which must not be a reason to draw again.
    let width = 0;
    new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width !== width && !part("words").hidden) drawLines();
      width = contentRect.width;
    }).observe(document.body);
    nameLanguages();
  }

  start();
})();
