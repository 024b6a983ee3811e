// Text from files, as it may be shown: control characters in it could clear a
// terminal, write its clipboard, or forge lines of a report.
#pragma once

#include <string>
#include <string_view>

namespace isoloss {

/// `text` with everything that a terminal would obey as an escape: control
/// characters (`\n`, `\t`, `\x1b`), bytes that are no UTF-8 (`\xff`), and code
/// points that control lines or directions (`\u{202e}`). All else stays as it
/// is, so that what is printable already does not change.
std::string Printable(std::string_view text);

/// Likewise, but line ends and tabs stay.
std::string PrintableLines(std::string_view text);

/// A message: a line end stays only before two spaces, where a list goes on,
/// and is `\n` elsewhere. So no name in it can begin a line of its own.
std::string PrintableMessage(std::string_view text);

}  // namespace isoloss
