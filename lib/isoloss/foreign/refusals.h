// Tells the user why no reader knows a file as a log.
#pragma once

#include <string_view>

#include "isoloss/foreign/source.h"

namespace isoloss::foreign {

/// Text from Windows may begin with these bytes.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Errors   FormatError if the content is no text: compressed, UTF-16, W&B's
///          own file, or any with a byte 0 near its front; or if it is a
///          pointer of git-lfs.
void RefuseBinary(std::string_view content);

/// Refuses text that no reader knows. `step_name` is that of ReadOptions.
/// Errors   FormatError always.
[[noreturn]] void RefuseUnknown(Source& log, std::string_view step_name);

}  // namespace isoloss::foreign
