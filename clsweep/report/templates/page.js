// Draws every chart when it comes near, in the colours of the page, and all of them before printing.
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
    tell();
  }

  // One drawing of a chart after the other: colours may change while it is drawn.
  function ask(chart) {
    near.add(chart);
    chart.queue = chart.queue.then(() => draw(chart));
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
