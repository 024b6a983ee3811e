// The libraries of others that this program is made of.
#pragma once

#include <string>
#include <vector>

namespace isoloss::campaign {

struct LibraryVersion {
  std::string name;
  std::string compiled;      ///< with the headers of this version
  std::string running = {};  ///< loaded now; "" if the library does not say

  /// Is the one loaded of another release than the headers (before the second
  /// full stop)?
  bool Differs() const;
};

/// But CLI11, which only the program itself includes.
std::vector<LibraryVersion> LibraryVersions();

}  // namespace isoloss::campaign
