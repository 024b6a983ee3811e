// What a value may be, by the name of its type in help: for completions.
#pragma once

#include <string>
#include <vector>

#include "command_tree.h"

namespace isoloss::cli {

/// What a shell offers for a value.
struct ValueWords {
  enum class Kind { kNothing, kWords, kFolders, kFiles };
  Kind kind = Kind::kNothing;
  /// kWords: all values there are, or how they may begin.
  std::vector<std::string> words = {};
  /// kFiles: "*.toml", of which a file must match one; empty: any file.
  /// Folders are always offered, as a way to files.
  std::vector<std::string> patterns = {};
  bool unfinished = false;  ///< words are followed by more: "train.steps="
};

/// By OptionEntry::choices and the table of type names below; kNothing for
/// numbers and free text.
ValueWords WordsFor(const OptionEntry& option);

// Type names of values that a shell can offer.
inline constexpr const char* kAnyFile = "FILE";
inline constexpr const char* kFolder = "FOLDER";
inline constexpr const char* kTomlFile = "TOML";
inline constexpr const char* kHdf5File = "HDF5";
inline constexpr const char* kLogFile = "LOG";  ///< HDF5 or a journal
inline constexpr const char* kJsonFile = "JSON";
inline constexpr const char* kRecipeName = "RECIPE";
inline constexpr const char* kFormatName = "FORMAT";
inline constexpr const char* kMutantName = "MUTANT";
inline constexpr const char* kPresetName = "PRESET";
inline constexpr const char* kCommandName = "COMMAND";
inline constexpr const char* kSetting = "KEY=VALUE";

}  // namespace isoloss::cli
