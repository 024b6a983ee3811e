// Checks that a golden is made by a commit that anybody can go back to.
#pragma once

#include <filesystem>

namespace isoloss::goldens {

/// Checks that this program was built from a commit without changes. If a git
/// work tree is around `folder`, it must have no changes either.
/// Errors   ConfigError that says what is not committed.
void CheckSourceIsCommitted(const std::filesystem::path& folder);

}  // namespace isoloss::goldens
