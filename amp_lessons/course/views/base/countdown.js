// A clock that runs down on the page. Seconds are for the eye alone; a screen reader hears of each minute.
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`;
const minutes = (count) => `${count} minute${count === 1 ? "" : "s"} left`;

function render({ model, el }) {
  const box = document.createElement("div");
  const seen = document.createElement("span");
  const heard = document.createElement("span");
  box.className = "amp-countdown";
  seen.setAttribute("role", "timer");
  seen.setAttribute("aria-live", "off");
  seen.setAttribute("aria-label", "time left");
  heard.setAttribute("aria-live", "polite");
  heard.className = "amp-countdown-heard";
  box.append(seen, heard);
  el.append(box);

  let endsAt = 0;
  let said = null; // the whole minutes that were last there
  const tick = () => {
    const left = Math.max(0, Math.ceil((endsAt - performance.now()) / 1000 - 0.001));
    const whole = Math.ceil(left / 60);
    seen.textContent = left ? clock(left) : model.get("over");
    seen.classList.toggle("amp-countdown-over", left === 0);
    if (said !== null && whole !== said) heard.textContent = left ? minutes(whole) : model.get("over");
    said = whole;
  };
  const set = () => {
    const { left_s, running } = model.get("state");
    box.hidden = !running;
    endsAt = performance.now() + 1000 * left_s;
    if (running) {
      tick();
    } else {
      said = null;
      seen.textContent = heard.textContent = "";
    }
  };
  const timer = setInterval(() => box.hidden || tick(), 250);
  model.on("change:state", set);
  set();
  model.send({ asks: "what is left" }); // the state may be from before this page was opened
  return () => {
    clearInterval(timer);
    model.off("change:state", set);
  };
}

export default { render };
