# Sourced by the scripts of tools: their help is the comment at their head (of those in Python,
# that of the program), and
# what they refuse, they refuse before anything is installed or built.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")

# Prints the comment at the head of the script.
print_help() {
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$script"
}

# refuse MESSAGE: a usage error.
refuse() {
  printf '%s: %s\n' "${script#"$root"/}" "$1" >&2
  printf 'Run %s --help for its options.\n' "${script#"$root"/}" >&2
  exit 2
}

is_one_of() {
  local word=$1 candidate
  shift
  for candidate in "$@"; do
    [ "$word" = "$candidate" ] && return 0
  done
  return 1
}

# check_passed_on PROGRAM FLAGS VALUED ARGUMENT...: refuses what is not among a
# program's options. FLAGS and VALUED are lists of words in one string; the
# latter take what follows them. Behind `--` nothing is checked.
check_passed_on() {
  local program=$1 flags valued takes_value=false argument
  read -rd "" -a flags <<<"$2" || true
  read -rd "" -a valued <<<"$3" || true
  shift 3
  for argument in "$@"; do
    case "$argument" in
      --) return 0 ;;
      -*=*) is_one_of "${argument%%=*}" "${valued[@]}" ||
        refuse "'${argument%%=*}' is no option of this script, nor one of $program with a value."
        takes_value=false ;;
      -*)
        if is_one_of "$argument" "${valued[@]}"; then
          takes_value=true
        elif is_one_of "$argument" "${flags[@]}"; then
          takes_value=false
        else
          refuse "'$argument' is no option of this script, nor of $program."
        fi ;;
      *) $takes_value || refuse "'$argument' stands behind no option that takes a value." ;;
    esac
  done
}

# phase TEXT: says on the standard error what begins, and how many seconds after the start.
phase() {
  printf '[%4d s] %s\n' "$SECONDS" "$1" >&2
}

# check_ctest_options ARGUMENT...: those of ctest that select, repeat and show tests.
check_ctest_options() {
  local argument arguments=()
  for argument in "$@"; do
    case "$argument" in
      -j[0-9]* | --show-only=* | --no-tests=* | --test-output-truncation=*) ;;
      *) arguments+=("$argument") ;;
    esac
  done
  check_passed_on ctest \
    "-F -N -Q -U -V -VV --extra-verbose --no-label-summary --output-on-failure --print-labels
     --progress --quiet --rerun-failed --schedule-random --show-only --stop-on-failure --union
     --verbose" \
    "-E -FA -FC -FS -I -L -LE -O -R -j --exclude-regex --label-exclude --label-regex --max-width
     --output-junit --output-log --parallel --repeat --repeat-until-fail --test-load
     --tests-information --tests-regex --timeout" "${arguments[@]}"
}

# start_python SECTION ARGUMENT...: goes on as the program in Python that lies beside the script.
# Bare Debian has no Python: the packages of SECTION come first there, unless the arguments ask for
# help only or for no installation.
start_python() {
  local section=$1
  shift
  if ! command -v python3 >/dev/null; then
    if is_one_of --help "$@" || is_one_of -h "$@" || is_one_of --no-install "$@"; then
      refuse "python3 is not installed. tools/dev/install_packages $section installs it."
    fi
    "$root/tools/dev/install_packages" "$section"
    hash -r
    command -v python3 >/dev/null ||
      refuse "python3 is not installed. Install it, or unset ISOLOSS_NO_INSTALL."
  fi
  exec python3 "$script.py" "$@"
}
