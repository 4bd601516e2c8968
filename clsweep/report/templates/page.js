// Draws every chart when it comes near, in the colours of the page, and all of them before printing;
// sorts tables, and makes files of charts.
"use strict";
(() => {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const charts = [...document.querySelectorAll(".chart")].map((element) => ({ element, theme: "", result: null, queue: Promise.resolve() }));
  const near = new Set();
  let printing = false;

  const theme = () => (prefersDark.matches && !printing ? "dark" : "light");

  // `data-rendered` of the page says how far it is: the colours in which all charts are drawn, or "part".
  function tell() {
    root.dataset.rendered = charts.every((chart) => chart.theme === theme()) ? theme() : "part";
  }

  async function draw(chart) {
    const wanted = theme();
    if (chart.theme === wanted) return;
    const { light, dark } = JSON.parse(document.getElementById(chart.element.dataset.spec).textContent);
    const spec = wanted === "dark" ? { ...light, ...dark } : light;
    chart.result?.finalize();
    try {
      chart.result = await vegaEmbed(chart.element, spec, {
        actions: false,
        ast: true, // interpreted expressions: the page allows no eval
        defaultStyle: false,
        mode: "vega-lite",
        renderer: "svg",
        tooltip: { theme: wanted },
      });
    } catch (error) {
      chart.result = null;
      chart.element.textContent = "This chart cannot be drawn by this browser; its files are below.";
      console.error(error);
    }
    chart.theme = chart.element.dataset.drawn = wanted;
    offer(chart);
    tell();
  }

  // One drawing of a chart after the other: colours may change while it is drawn.
  function ask(chart) {
    near.add(chart);
    chart.queue = chart.queue.then(() => draw(chart));
  }

  // Files of a chart, made when somebody asks: the page holds none of them.
  function save(name, parts, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(parts, { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  const files = {
    SVG: async (view, name) => save(`${name}.svg`, [await view.toSVG()], "image/svg+xml"),
    PNG: async (view, name) => {
      const canvas = await view.toCanvas(2);
      canvas.toBlob((blob) => save(`${name}.png`, [blob], "image/png"));
    },
    "Vega-Lite": async (_, name, chart) => save(`${name}.vl.json`, [JSON.stringify(chart.spec)], "application/json"),
  };

  function offer(chart) {
    const place = chart.element.closest("figure").querySelector(".files[data-name]");
    if (!chart.result || place.querySelector("button")) return;
    for (const [kind, make] of Object.entries(files)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind;
      button.addEventListener("click", () => make(chart.result.view, place.dataset.name, chart.result));
      place.append(button);
    }
  }

  // Numbers by value, where each cell of a column begins with one; texts as people sort them.
  function sort(table, index, heading) {
    const body = table.tBodies[0];
    const down = heading.getAttribute("aria-sort") === "ascending";
    const rows = [...body.rows].map((row) => ({ row, text: row.cells[index].textContent.trim() }));
    const value = (text) => parseFloat(text.replaceAll(",", ""));
    const numeric = rows.every(({ text }) => text === "" || !Number.isNaN(value(text)));
    rows.sort((a, b) => {
      if (a.text === "" || b.text === "") return (a.text === "") - (b.text === "");
      const order = numeric ? value(a.text) - value(b.text) : a.text.localeCompare(b.text, "en", { numeric: true });
      return down ? -order : order;
    });
    body.append(...rows.map(({ row }) => row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", (event) => {
        if (!event.target.closest("a")) sort(table, index, heading);
      });
    });
  }

  const watch = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        watch.unobserve(entry.target);
        ask(charts.find((chart) => chart.element === entry.target));
      }
    },
    { rootMargin: "600px 0px" },
  );

  function repaint() {
    tell();
    near.forEach(ask);
  }

  prefersDark.addEventListener("change", repaint);
  addEventListener("beforeprint", () => {
    printing = true;
    charts.forEach(ask);
  });
  addEventListener("afterprint", () => {
    printing = false;
    repaint();
  });
  tell();
  charts.forEach((chart) => watch.observe(chart.element));
})();
