// Is what made a golden a commit that others can go back to?
#pragma once

#include <filesystem>

namespace isoloss::campaign {

/// That this program was built from a commit without changes, and that the git
/// work tree around `folder`, if there is one, has none either.
/// Errors   ConfigError that says what is not committed.
void CheckSourceIsCommitted(const std::filesystem::path& folder);

}  // namespace isoloss::campaign
