// Run by `node --test` in this folder; it needs nothing but Node 20.
"use strict";
const assert = require("node:assert");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { test } = require("node:test");
const { drawPlan } = require("./plan_viewer.js");

const html = readFileSync(join(__dirname, "index.html"), "utf8");
const embedded = /<script type="application\/json" id="sample">([^]*?)<\/script>/;
const sample = () => JSON.parse(html.match(embedded)[1]);

/** The part of a page that drawing takes. An element has no way to take markup. */
const page = {
  createElementNS(namespace, tag) {
    assert.strictEqual(namespace, "http://www.w3.org/2000/svg");
    const attributes = {}, children = [];
    const setAttribute = (name, value) => (attributes[name] = value);
    const append = (...given) => children.push(...given);
    return { tag, attributes, children, textContent: "", setAttribute, append };
  },
};

/** The names of the boxes of a class, and the edges of a class as `from>to`, of a drawing. */
function summary(svg) {
  const boxes = [], edges = {};
  svg.children.forEach((each, k) => {
    if (each.tag === "rect") boxes.push({ ...each.attributes, name: svg.children[k + 1].textContent });
  });
  const at = (x, y, bottom) => boxes.find((box) => box.x + 95 === x && box.y + (bottom ? 44 : 0) === y).name;
  for (const { tag, attributes: a } of svg.children)
    if (tag === "line") (edges[a.class] ??= []).push(`${at(a.x1, a.y1, true)}>${at(a.x2, a.y2, false)}`);
  const named = (kind) => boxes.filter((box) => box.class === kind).map((box) => box.name);
  return { ends: named("end"), buffers: named("buffer"), steps: named("step"), edges };
}

test("the sample's steps and buffers are drawn with their edges", () => {
  assert.deepStrictEqual(summary(drawPlan(sample(), page)), {
    ends: ["x", "w", "y"],
    buffers: ["h", "m", "rows"],
    steps: ["relu", "aten.mm.default", "softmax"],
    edges: {
      reads: ["x>relu", "h>aten.mm.default", "w>aten.mm.default", "rows>softmax"],
      writes: ["relu>h", "aten.mm.default>m", "softmax>y"],
      shares: ["m>rows"],
    },
  });
});

test("no two boxes overlap, and all lie in the drawing", () => {
  const svg = drawPlan(sample(), page);
  const boxes = svg.children.filter((each) => each.tag === "rect").map((each) => each.attributes);
  assert.strictEqual(new Set(boxes.map((box) => `${box.x} ${box.y}`)).size, boxes.length);
  for (const box of boxes) {
    assert.ok(box.x + box.width <= svg.attributes.width && box.y + box.height <= svg.attributes.height);
  }
});

test("a kernel that updates a buffer reads and writes it", () => {
  const plan = sample();
  plan.kernels[0].parameters[1].access = "inout";
  const { edges } = summary(drawPlan(plan, page));
  assert.ok(edges.reads.includes("h>relu") && edges.writes.includes("relu>h"));
});

test("names are text", () => {
  const plan = sample();
  const markup = "<img src=x onerror=alert(1)>";
  plan.kernels[0].name = plan.steps.find((step) => step.kernel === "relu").kernel = markup;
  assert.ok(summary(drawPlan(plan, page)).steps.includes(markup));
  const source = readFileSync(join(__dirname, "plan_viewer.js"), "utf8");
  assert.doesNotMatch(html + source, /innerHTML|outerHTML|insertAdjacentHTML|document\.write/);
});

test("fields, steps and minor versions that the reader does not know are ignored", () => {
  const plan = { ...sample(), version: [1, 9], hue: "red" };
  plan.steps.push({ class: "Rest" });
  assert.deepStrictEqual(summary(drawPlan(plan, page)), summary(drawPlan(sample(), page)));
});

test("other documents are refused", () => {
  const changes = [{ format: "json" }, { version: [2, 0] }, { version: undefined }, { class: "LoopGraph" }];
  for (const change of changes)
    assert.throws(() => drawPlan({ ...sample(), ...change }, page), /expected a plan/);
  assert.throws(() => drawPlan(null, page), /expected a plan/);
});
