#compdef npudiff
# zsh completion for npudiff. Made by tools/make_shell_files from the program's option tables.

# Asks npudiff for candidates, each with what it is.
_npudiff_ask() {
  local -a words_found meanings lines
  local line
  lines=("${(@f)$(npudiff --complete $1 ${(Q)words[2,-1]} 2>/dev/null)}")
  for line in $lines; do
    words_found+=("${line%%$'\t'*}")
    meanings+=("${line/$'\t'/  }")
  done
  (( $#words_found )) && compadd -l -d meanings -a words_found
}

_npudiff() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  local -a commands
  commands=(
@LIST@
  )
  _arguments -C '--version[print the versions]' '(-h --help)'{-h,--help}'[print the commands]' '1: :->command' '*:: :->rest'
  case $state in
  command)
    commands+=('help:explain a command or an error')
    _describe command commands
    ;;
  rest)
    curcontext="${curcontext%:*:*}:npudiff-$line[1]:"
    case $line[1] in
    help)
      _describe command commands
      ;;
@CASES@
    esac
    ;;
  esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _npudiff "$@"
else
  compdef _npudiff npudiff
fi
