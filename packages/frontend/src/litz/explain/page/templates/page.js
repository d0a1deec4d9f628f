"use strict";
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const keysOf = (element) => element.dataset.k.split(" ");

  // Tabs: one graph is shown at a time; without this script all are.
  const tabs = all('[role="tab"]');
  const select = (tab) => tabs.forEach((each) => {
    each.setAttribute("aria-selected", each === tab);
    each.tabIndex = each === tab ? 0 : -1;
    document.getElementById(each.getAttribute("aria-controls")).hidden = each !== tab;
  });
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = tabs[(place + by + tabs.length) % tabs.length];
      select(next);
      next.focus();
    });
  });
  if (tabs.length) select(tabs[0]);

  // Links: whatever belongs to a step is lit with it.
  const owners = new Map();
  for (const element of all("[data-k]"))
    for (const key of keysOf(element)) {
      if (!owners.has(key)) owners.set(key, new Set());
      owners.get(key).add(element);
    }
  const linked = (element) => new Set(keysOf(element).flatMap((key) => [...(owners.get(key) ?? [])]));
  let lit = [];
  const light = (element) => {
    lit.forEach((each) => each.classList.remove("lit"));
    lit = element ? [...linked(element)] : [];
    lit.forEach((each) => each.classList.add("lit"));
  };
  const reveal = (element) => {
    const own = element.closest(".pane, .drawing");
    const partners = [...linked(element)];
    for (const pane of all(".pane, .drawing", element.closest("[data-graph]"))) {
      if (pane === own) continue;
      const first = partners.find((each) => pane.contains(each) && !each.matches(".edge"));
      if (!first) continue;
      const [inner, outer] = [first.getBoundingClientRect(), pane.getBoundingClientRect()];
      pane.scrollTop += inner.top - outer.top - Math.max(24, (outer.height - inner.height) / 3);
      pane.scrollLeft += first.matches(".box") ? inner.left - outer.left - (outer.width - inner.width) / 2 : 0;
    }
  };
  const target = (event) => event.target.closest?.("[data-k]");
  document.addEventListener("mouseover", (event) => light(target(event)));
  document.addEventListener("focusin", (event) => { if (target(event)) light(target(event)); });
  document.addEventListener("click", (event) => { if (target(event)) reveal(target(event)); });

  // One tab stop for each list of links; arrow keys move inside it, Enter shows the partners.
  for (const list of all("[data-list]")) {
    const items = all("[data-k]:not(.edge)", list);
    items.forEach((item, place) => { item.tabIndex = place ? -1 : 0; });
    list.addEventListener("keydown", (event) => {
      const at = items.indexOf(document.activeElement);
      if (at < 0) return;
      if (event.key === "Enter") return reveal(items[at]);
      const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      const next = items[at + by];
      if (!next) return;
      event.preventDefault();
      items[at].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }

  // Tables: a button in each heading sorts by its column, numbers first from the greatest.
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  for (const button of all("th button"))
    button.addEventListener("click", () => {
      const heading = button.closest("th");
      const body = heading.closest("table").tBodies[0];
      const column = heading.cellIndex;
      const rows = [...body.rows];
      const numeric = rows.some((row) => row.cells[column].dataset.v !== undefined);
      const before = heading.getAttribute("aria-sort");
      const order = before === "none" ? (numeric ? "descending" : "ascending")
        : before === "descending" ? "ascending" : "descending";
      all("th", heading.parentNode).forEach((each) => { if (each.ariaSort) each.ariaSort = "none"; });
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      rows.sort((one, other) => {
        const [a, b] = [value(one, column), value(other, column)];
        return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
      });
      body.append(...rows);
    });

  // Decisions: rows that hold the text, and have the chosen stage and verdict.
  for (const form of all("form.filters")) {
    const rows = [...document.getElementById(form.dataset.table).tBodies[0].rows];
    const count = form.querySelector("output");
    const apply = () => {
      const text = form.elements.text.value.toLowerCase();
      const [stage, verdict] = [form.elements.stage.value, form.elements.verdict.value];
      let shown = 0;
      for (const row of rows) {
        const fits = (!stage || row.cells[0].textContent === stage) && (!verdict || row.cells[1].textContent === verdict)
          && row.textContent.toLowerCase().includes(text);
        row.hidden = !fits;
        shown += fits;
      }
      count.textContent = `${shown} of ${rows.length} rows`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }
})();
