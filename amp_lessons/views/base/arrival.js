// That this runs is what the page is asked: it draws widgets, anywidgets among them.
function render({ model, el }) {
  const style = document.createElement("style");
  style.textContent = model.get("rules");
  el.append(style);
}

export default { render };
