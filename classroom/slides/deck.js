// On by one slide with the arrows, Page Up and Down or the space bar; to either end with Home and End.
const slides = [...document.querySelectorAll("section")];
const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
const here = () => slides.findLastIndex((slide) => slide.getBoundingClientRect().top < innerHeight / 2);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const to = { Home: 0, End: slides.length - 1 }[event.key] ?? here() + steps[event.key] * (event.shiftKey ? -1 : 1);
  if (Number.isNaN(to)) return;
  event.preventDefault();
  slides[Math.min(Math.max(to, 0), slides.length - 1)].scrollIntoView();
});

// What is too tall for this screen is made smaller.
function fit() {
  for (const slide of slides) {
    const content = slide.firstElementChild;
    content.style.zoom = 1;
    if (slide.offsetHeight > innerHeight) content.style.zoom = (0.95 * innerHeight) / slide.offsetHeight;
  }
}
addEventListener("load", fit);
addEventListener("resize", fit);
