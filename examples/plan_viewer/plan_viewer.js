/** A plan, given as its parsed document, as an SVG element: rows of buffers and steps, inputs first. */
function drawPlan(plan, page) {
  if (plan?.format !== "litz-interchange" || plan.version?.[0] !== 1 || plan.class !== "Plan")
    throw new Error("expected a plan in the interchange form of litz, version 1");
  const placements = new Map(plan.buffers), kernels = new Map(plan.kernels.map((each) => [each.name, each]));
  const ends = new Set([...plan.inputs, ...plan.constants, ...plan.outputs].map((each) => each?.name));
  const boxes = new Map(), widths = [], shapes = [];
  function make(tag, attributes, text = "", children = []) {
    const found = page.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
    found.textContent = text; // names are text: none is read as markup
    found.append(...children);
    return found;
  }
  function box(id, kind, row, name, detail) {
    const place = widths[row] ?? 0, x = 10 + 200 * place, y = 10 + 80 * row;
    widths[row] = place + 1;
    boxes.set(id, { x: x + 95, y, row });
    shapes.push(make("rect", { class: kind, x, y, width: 190, height: 44, rx: kind === "step" ? 2 : 22 }));
    shapes.push(make("text", { x: x + 95, y: y + 19 }, name), make("text", { x: x + 95, y: y + 36 }, detail));
  }
  function edge(from, to, kind) {
    const { x, y } = boxes.get(from), end = boxes.get(to);
    shapes.push(make("line", { class: kind, x1: x, y1: y + 44, x2: end.x, y2: end.y }));
  }
  function buffer(name, row) {
    if (boxes.has(name)) return boxes.get(name).row;
    const { type, base } = placements.get(name), kind = ends.has(name) ? "end" : "buffer";
    const below = base == null ? row : Math.max(row, buffer(base, 0) + 1);
    const shape = type.shape.map((size) => size.name ?? size.class ?? size); // number, symbol or other term
    box(name, kind, below, name, `${type.dtype}[${shape.join(", ")}]`);
    if (base != null) edge(base, name, "shares");
    return below;
  }
  const refs = (data) => Array.isArray(data) ? data.flatMap(refs) : /Ref$/.test(data?.class) ? data.name : [];
  for (const [id, step] of plan.steps.entries()) {
    if (!/^(Launch|CallStep|RegionStep)$/.test(step.class)) continue;
    const parameters = kernels.get(step.kernel)?.parameters;
    const used = (access) => step.buffers?.filter((_, k) => access.test(parameters[k].access));
    const known = (names) => [...new Set(names)].filter((name) => placements.has(name));
    const reads = known(used(/^in/) ?? refs([step.arguments, step.attributes]));
    const row = Math.max(0, ...reads.map((name) => buffer(name, 0))) + 1;
    box(id, "step", row, step.kernel ?? step.target ?? step.kind, step.class);
    for (const name of reads) edge(name, id, "reads");
    for (const name of known(used(/out$/) ?? step.results)) buffer(name, row + 1), edge(id, name, "writes");
  }
  const width = 10 + 200 * Math.max(1, ...Object.values(widths)), height = 10 + 80 * widths.length;
  return make("svg", { role: "img", width, height, viewBox: `0 0 ${width} ${height}` }, "", shapes);
}
if (typeof module === "object") module.exports = { drawPlan };
