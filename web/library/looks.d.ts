/** The text of looks.css, for a shadow root. The gateway makes looks.js of it, in its site and in the package. */
export const looks: string;
