/** The stage of a conversation, for the page and for VOX: where the orb stands, the words that scroll, and the status. style.css places them. */
import { glide, make } from './dom.js';
import { MENDABLE, splitStatus } from './status.js';

const LINES = 72; // characters: a longer status has three lines on a phone
const AWAY = 48; // pixels from the end: a person who scrolled further up gets a hint about new text

/**
 * Shows or hides a part of the page, and tells style.css by a class of the body. With body:has(#absence:not([hidden])) the browser searches the whole
 * conversation at each word of an answer.
 * @param {string} id
 * @param {boolean} isShown
 */
export function showPart(id, isShown) {
  /** @type {HTMLElement} */ (document.getElementById(id)).hidden = !isShown;
  document.body.classList.toggle(`shows-${id}`, isShown);
}

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

  /** The way down is shown away from the end, and says whether there are new words. @param {boolean} [isNew] */
  function showWayDown(isNew = false) {
    $('newest').hidden = atEnd;
    $('newest').classList.toggle('new', !atEnd && (isNew || $('newest').classList.contains('new')));
  }

  /** Brings the end into sight, and keeps it there. */
  function showEnd() {
    setAtEnd(true);
    showWayDown();
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
    body.style.setProperty('--gutter', `${(main.offsetWidth - main.clientWidth) / 2}px`);
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
    else if (thread.offsetHeight > height) showWayDown(true); // it may have come before the page knew of the scrolling
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
    showWayDown();
    if (atEnd) onEnd();
  }, { passive: true });
  $('newest').addEventListener('click', () => {
    showEnd();
    main.focus({ preventScroll: true });
  });

  /** Words of the status that can be pressed. @param {string} words @param {() => void} press */
  function linkTo(words, press) {
    const button = make('button', 'link', words);
    button.addEventListener('click', press);
    return button;
  }

  /** The advice to choose another microphone leads to the choice. @param {string} advice */
  const choice = (advice) => Object.assign(linkTo(advice, chooseMicrophone), { id: 'other-microphone' });

  /**
   * Shows the status, and Try again where a microphone may be mended: as a button, or as a link in its line. As long
   * as it is not mended, also while an answer has the status, no other control is shown for it.
   * @param {Pick<import('./status.js').Status, 'text'|'keys'|'canRetryMic'|'isBrief'>} status
   * @param {import('./types.d.ts').Mic} mic
   * @returns {boolean} whether its text has changed
   */
  function showStatus({ text, keys, canRetryMic, isBrief }, mic) {
    showPart('denied', canRetryMic && !isBrief);
    $('mute').hidden = MENDABLE.includes(mic); // "Try again" stands with the sentence
    if (shown === `${text}${isBrief}`) return false;
    shown = `${text}${isBrief}`;
    body.classList.toggle('lengthy', text.length > LINES);
    const [first, rest] = splitStatus(text);
    const more = rest.replace(' ·', '\u00a0·'); // no line begins with a dot
    const retry = isBrief ? [' ', linkTo($('tryagain').textContent ?? '', () => $('tryagain').click())] : [];
    $('status').replaceChildren(make('b', '', first), ...(keys.includes('states choose mic') ? [' ', choice(rest.trim())] : [more]), ...retry);
    return true;
  }

  /** A sheet makes the dock inert, so it has it at its foot, and the page keeps its place: Mute and End can be used, and nothing moves. @param {HTMLDialogElement} sheet */
  function takeDock(sheet) {
    if (dock.parentElement !== body) return;
    const place = make('div', 'dock-place');
    Object.assign(place.style, { width: `${dock.offsetWidth}px`, height: `${dock.offsetHeight}px` });
    dock.replaceWith(place);
    sheet.append(dock);
    sheet.addEventListener('close', () => place.replaceWith(dock), { once: true, capture: true }); // before what removes the sheet
  }

  /** Nothing of the words moves in this frame. */
  const isStill = () => thread.offsetHeight === height && main.clientHeight === room && (!atEnd || main.scrollHeight - main.clientHeight - main.scrollTop <= 1);

  return { arrange, glide: glideTo, showStatus, showWayDown, isAtEnd: () => atEnd, isStill, showEnd, takeDock };
}
