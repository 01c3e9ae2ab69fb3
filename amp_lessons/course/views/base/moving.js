// A drawing that stands still, in which the outlines of a few shapes move: what changes from frame to frame
// is some text in an attribute, so that the picture keeps up with a slider.
function render({ model, el }) {
  const figure = document.createElement("figure");
  const inShort = document.createElement("p");
  const caption = document.createElement("figcaption");
  figure.className = "amp-picture";
  figure.style.margin = "0";
  caption.style.cssText = model.get("caption_style");
  inShort.className = model.get("in_short") ? "amp-in-short amp-from-the-start" : "amp-in-short";
  for (const each of [inShort, caption]) each.setAttribute("aria-live", "polite");
  figure.innerHTML = model.get("box");
  const drawing = figure.querySelector(".amp-scroll");
  drawing.before(inShort);
  figure.append(caption);
  el.append(figure);

  const move = () => {
    for (const [name, outline] of Object.entries(model.get("outlines"))) {
      drawing.querySelector(`#${name} path`)?.setAttribute("d", outline);
    }
  };
  const draw = () => {
    drawing.innerHTML = model.get("drawing");
    const [wide, narrow] = drawing.children; // the second, where there is one, is a phone's
    figure.style.maxWidth = wide ? `${model.get("width")}px` : "none";
    for (const each of drawing.children) {
      each.setAttribute("role", "img");
      each.classList.add("amp-paper");
    }
    if (wide) wide.style.minWidth = `${model.get("narrowest")}px`;
    narrow?.classList.add("amp-narrow");
    move();
    describe();
  };
  const describe = () => {
    for (const each of drawing.children) each.setAttribute("aria-label", model.get("alt"));
  };
  const speak = () => (caption.textContent = model.get("caption"));
  const reached = {}; // ends of a range, by what it is a range of
  const judge = () => {
    const [of, said, at, words] = model.get("goal");
    figure.classList.toggle("amp-ranged", Boolean(of)); // the slider keeps room for the range
    const found = (reached[of] ??= {});
    if (said) found[said] = { at, words };
    const [low, high] = Object.values(found).sort((one, other) => one.at - other.at);
    // in one line, also on a phone: the picture stays where it is
    const range = said && high && `✓ Found: ${low.words} to ${high.words} are safe.`;
    inShort.textContent = range || model.get("in_short");
    inShort.classList.toggle("amp-reached", inShort.textContent.startsWith("✓"));
    // The slider stands beside this page, and draws the range below its track (controls.css).
    const drawn = { from: high ? low.at : 0, to: high ? high.at : 0, words: high ? '"safe"' : '""' };
    for (const [name, value] of Object.entries(drawn)) el.parentElement?.style.setProperty(`--amp-range-${name}`, value);
  };
  const changes = { drawing: draw, outlines: move, alt: describe, caption: speak, in_short: judge, goal: judge };
  for (const [name, change] of Object.entries(changes)) model.on(`change:${name}`, change);
  draw();
  judge();
  speak();
  return () => {
    for (const [name, change] of Object.entries(changes)) model.off(`change:${name}`, change);
  };
}

export default { render };
