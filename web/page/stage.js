/** The stage of a conversation, for the page and for VOX: where the orb stands, the words that scroll, and the status. style.css places them. */
import { glide, make } from './dom.js';
import { splitStatus } from './status.js';

const LINES = 72; // characters: a longer status has three lines on a phone
const AWAY = 48; // pixels from the end: a person who scrolled further up gets a hint about new text

/**
 * @param {object} page
 * @param {() => void} page.chooseMicrophone opens the choice of microphones
 * @param {() => boolean} page.isGrowing an answer grows: smooth scrolling would lag behind it
 * @param {() => void} [page.onEnd] the end has come into sight
 */
export function openStage({ chooseMicrophone, isGrowing, onEnd = () => {} }) {
  const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
  const { body } = document;
  const main = /** @type {HTMLElement} */ (document.querySelector('main'));
  const thread = /** @type {HTMLElement} */ (main.firstElementChild);
  const dock = /** @type {HTMLElement} */ (document.querySelector('footer'));
  const still = matchMedia('(prefers-reduced-motion: reduce)');
  const isNarrow = matchMedia('(max-width: 59.99rem)');
  let atEnd = true; // what comes is kept in sight
  let scrolled = 0; // pixels, at the last event
  let room = 0; // pixels, the height for the conversation
  let height = 0; // pixels, of the conversation
  let length = 0; // pixels, of all that scrolls, at the last event
  let shown = ''; // the sentences of the status

  /** Follows the end or not. While it is followed, the browser does not hold what is above: what goes away there would scroll the page up. @param {boolean} is */
  function setAtEnd(is) {
    atEnd = is;
    main.style.overflowAnchor = is ? 'none' : '';
  }
  setAtEnd(true);

  /** Brings the end into sight, and keeps it there. */
  function showEnd() {
    setAtEnd(true);
    $('newest').hidden = true;
    main.scrollTo({ top: main.scrollHeight, behavior: still.matches ? 'auto' : 'smooth' });
  }

  /** The words have filled the room under the bar. */
  const isFull = () => thread.offsetHeight > main.clientHeight;

  /** The words stand at the bottom, and the orb is large while there is room for both. */
  function arrange() {
    const { classList } = body;
    const begun = !classList.contains('home');
    classList.toggle('anchored', begun);
    classList.toggle('roomy', begun);
    if (begun && !classList.contains('wordless')) classList.toggle('roomy', !isFull());
    body.style.setProperty('--room', `${main.clientHeight}px`);
  }

  /** Changes the page, and lets the orb and the status glide to their new places. @param {() => void} change */
  function glideTo(change) {
    glide($('orb'), change, $('status'));
    scrolled = Math.min(scrolled, main.scrollTop); // a shorter page scrolls without the person
  }

  /** The words need the room of the orb, and go down into it: nothing stays empty under them. */
  const fillUp = () => body.classList.remove('roomy');

  /** Keeps the end in sight while it grows. Neither scrolling nor a transform moves layout: a line that comes pushes nothing. */
  const follow = new ResizeObserver(() => {
    const covered = body.classList.contains('covered');
    const resized = room !== main.clientHeight;
    room = main.clientHeight;
    if (!covered && resized) requestAnimationFrame(() => glideTo(arrange));
    else if (!covered && body.classList.contains('roomy') && isFull()) requestAnimationFrame(() => glideTo(fillUp));
    if (atEnd) main.scrollTo({ top: main.scrollHeight, behavior: still.matches || isGrowing() ? 'auto' : 'smooth' });
    else if (thread.offsetHeight > height) $('newest').hidden = false; // it may have come before the page knew of the scrolling
    height = thread.offsetHeight;
    scrolled = main.scrollTop; // of itself, if what is below became smaller
    length = main.scrollHeight;
  });
  for (const e of [main, thread]) follow.observe(e, { box: 'border-box' });
  main.addEventListener('scroll', () => {
    const rest = main.scrollHeight - main.clientHeight - main.scrollTop;
    const isShorter = main.scrollHeight < length; // something was removed, and the page scrolled of itself
    if (rest < AWAY) setAtEnd(true);
    else if (main.scrollTop < scrolled && main.clientHeight === room && !isShorter) setAtEnd(false); // the person went up; what grows only adds to the rest
    scrolled = main.scrollTop;
    length = main.scrollHeight;
    if (!atEnd) return;
    $('newest').hidden = true;
    onEnd();
  }, { passive: true });
  $('newest').addEventListener('click', showEnd);

  /** The advice to choose another microphone leads to the choice. @param {string} advice */
  function choice(advice) {
    const button = make('button', 'link', advice);
    button.id = 'other-microphone';
    button.addEventListener('click', chooseMicrophone);
    return button;
  }

  /**
   * Shows the status, and Try again where a microphone may be mended.
   * @param {Pick<import('./status.js').Status, 'text'|'keys'|'canRetryMic'>} status
   * @returns {boolean} whether its text has changed
   */
  function showStatus({ text, keys, canRetryMic }) {
    $('denied').hidden = !canRetryMic;
    if (shown === text) return false;
    shown = text;
    body.classList.toggle('lengthy', text.length > LINES);
    const [first, rest] = splitStatus(text);
    const more = rest.replace(' ·', '\u00a0·'); // no line begins with a dot
    $('status').replaceChildren(make('b', '', first), ...(keys.includes('states choose mic') ? [' ', choice(rest.trim())] : [more]));
    return true;
  }

  /** On a phone a sheet covers the dock, which then stands at the foot of the sheet: an open microphone stays in sight. @param {HTMLDialogElement} sheet */
  function takeDock(sheet) {
    const next = dock.nextSibling;
    if (!isNarrow.matches || !next) return;
    sheet.append(dock);
    sheet.addEventListener('close', () => next.before(dock), { once: true });
  }

  /** Nothing of the words moves in this frame. */
  const isStill = () => thread.offsetHeight === height && main.clientHeight === room && (!atEnd || main.scrollHeight - main.clientHeight - main.scrollTop <= 1);

  return { arrange, glide: glideTo, showStatus, isAtEnd: () => atEnd, isStill, showEnd, takeDock };
}
