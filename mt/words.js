// What the pages of `mt serve` and `mt attention` share: elements, and two rows of words with lines between them.
"use strict";

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// The arrow keys move along a row of which only one element is reached by Tab.
function moveByArrows(row) {
  row.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const all = [...row.children];
    const index = all.indexOf(document.activeElement);
    if (!step || index < 0) return;
    event.preventDefault();
    const next = all[Math.max(0, Math.min(all.length - 1, index + step))];
    for (const other of all) other.tabIndex = other === next ? 0 : -1;
    next.focus();
  };
}

// A path for each link, which has the index of a word in each row. The rows are two columns where they do not fit.
function pathsBetween(pair, rows, links) {
  pair.classList.remove("tall");
  pair.classList.add("wide");
  const isWide = rows.every((row) => row.scrollWidth <= row.clientWidth + 1);
  if (!isWide) pair.classList.replace("wide", "tall");
  const box = pair.getBoundingClientRect();
  const anchor = (index, side) => {
    const at = rows[side].children[index].getBoundingClientRect();
    return isWide
      ? [at.left + at.width / 2 - box.left, (side ? at.top - 2 : at.bottom + 2) - box.top]
      : [(side ? at.left - 2 : at.right + 2) - box.left, at.top + at.height / 2 - box.top];
  };
  return links.map((link) => {
    const [[x1, y1], [x2, y2]] = link.map(anchor);
    const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
    const bend = isWide ? `${x1} ${y} ${x2} ${y}` : `${x} ${y1} ${x} ${y2}`;
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", `M${x1} ${y1}C${bend} ${x2} ${y2}`);
    return path;
  });
}
