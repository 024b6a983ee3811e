// Defines the names that help gives to values of options.
#pragma once

namespace isoloss::cli {

inline constexpr const char* kAnyFile = "FILE";
inline constexpr const char* kFolder = "FOLDER";
inline constexpr const char* kTomlFile = "TOML";
inline constexpr const char* kHdf5File = "HDF5";
inline constexpr const char* kLogFile = "LOG";  ///< HDF5 or a journal
inline constexpr const char* kJsonFile = "JSON";
inline constexpr const char* kRecipeName = "RECIPE";
inline constexpr const char* kFormatName = "FORMAT";
inline constexpr const char* kPresetName = "PRESET";
inline constexpr const char* kSetting = "KEY=VALUE";

}  // namespace isoloss::cli
