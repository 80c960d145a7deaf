# bash completion for npudiff. Made by tools/make_shell_files from the program's option tables.

declare -A _npudiff_options _npudiff_operands _npudiff_actions _npudiff_values
@TABLE@

# Offers the words that begin with $2. bash takes ':' and '=' for ends of words, so what is before them goes.
_npudiff_offer() { # words current
    local word before=
    case $2 in
    *[:=]*) before=${2%"${2##*[:=]}"} ;;
    esac
    while IFS= read -r word; do
        [[ $word == "$2"* ]] && COMPREPLY+=("$(printf %q "${word#"$before"}")")
    done <<<"$1"
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace
}

_npudiff_files() { # endings current
    local ending
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -d -- "$2")
    [[ $1 == . ]] && return
    if [[ -z $1 ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$2")
        return
    fi
    for ending in $1; do
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -X "!*.$ending" -- "$2")
    done
}

# What completes a value: "=" words, "?" what npudiff is asked for, "/" endings of files.
_npudiff_value() { # offer current words...
    local kind=$1 current=$2
    shift 2
    case $kind in
    =*) _npudiff_offer "$(tr ' ' '\n' <<<"${kind#=}")" "$current" ;;
    \?*) _npudiff_offer "$(npudiff --complete "${kind#\?}" "$@" 2>/dev/null | cut -f1)" "$current" ;;
    *) _npudiff_files "${kind#/}" "$current" ;;
    esac
}

_npudiff() {
    # The words as they were typed: bash's own list is cut at ':' and '='.
    local words current previous command
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    current=
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] || current=${words[-1]}
    [[ -z $current ]] || unset 'words[-1]'
    previous=${words[-1]}
    command=${words[1]-}
    COMPREPLY=()
    if [[ ${#words[@]} -le 1 ]]; then
        _npudiff_offer "$(tr ' ' '\n' <<<"@COMMANDS@ help --help --version")" "$current"
    elif [[ $command == help ]]; then
        _npudiff_offer "$(tr ' ' '\n' <<<"@COMMANDS@ errors")" "$current"
    elif [[ -n ${_npudiff_values["$command $previous"]-} ]]; then
        _npudiff_value "${_npudiff_values["$command $previous"]}" "$current" "${words[@]:2}"
    elif [[ $current == -* ]]; then
        _npudiff_offer "$(tr ' ' '\n' <<<"${_npudiff_options[$command]-}")" "$current"
    elif [[ ${#words[@]} == 2 && -n ${_npudiff_actions[$command]-} ]]; then
        _npudiff_offer "$(tr ' ' '\n' <<<"${_npudiff_actions[$command]}")" "$current"
    else
        _npudiff_value "${_npudiff_operands[$command]-/}" "$current" "${words[@]:2}"
    fi
}

complete -F _npudiff npudiff
