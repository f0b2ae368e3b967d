"use strict";
/* The report: its figures, its folds, its contents. */
(() => {
  const drawings = JSON.parse(document.getElementById("charts").textContent).map((spec) => qccfCharts.build(spec));

  /* A link into a fold opens it. */
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  if (location.hash) unfold();

  /* Paper has no folds. */
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((fold) => { fold.open = true; });
    drawings.forEach((draw) => draw());
  });
  window.addEventListener("afterprint", () => { opened.forEach((fold) => { fold.open = false; }); opened = []; });

  /* The contents mark the section that is being read: the last one that starts above the middle of the screen. */
  const links = [...document.querySelectorAll(".contents a")];
  const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
  let marked = null;
  const mark = () => {
    const atEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 2;
    const read = sections.filter((s) => s.getBoundingClientRect().top < window.innerHeight / 2);
    const here = atEnd ? links.length - 1 : Math.max(0, read.length - 1);
    if (here === marked) return;
    marked = here;
    links.forEach((link, k) => k === here ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
    const list = links[here].closest("ul");
    if (list.scrollWidth > list.clientWidth) list.scrollTo({ left: links[here].offsetLeft - list.clientWidth / 3 });
  };
  window.addEventListener("scroll", mark, { passive: true });
  mark();
})();
