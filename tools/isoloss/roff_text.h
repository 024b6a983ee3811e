// Text as roff takes it.
#pragma once

#include <string>

namespace isoloss::cli {

/// `text` with everything escaped that roff would obey or draw as another
/// character; other characters than ASCII stand as their code points. Lines
/// stay lines.
///
/// Special  what base/printable.h takes for unprintable is shown as there.
std::string RoffText(const std::string& text);

}  // namespace isoloss::cli
